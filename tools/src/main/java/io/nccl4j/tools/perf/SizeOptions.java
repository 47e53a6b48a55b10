package io.nccl4j.tools.perf;

import io.nccl4j.Device;
import io.nccl4j.tools.cli.OptionValue;
import java.util.List;
import picocli.CommandLine.Option;

/** The options that say which sizes a table has. */
final class SizeOptions {
  @Option(
      names = {"-b", "--minbytes"},
      paramLabel = "SIZE",
      defaultValue = "32M",
      converter = OptionValue.Size.class,
      description = "the first size; default 32M")
  long minBytes;

  @Option(
      names = {"-e", "--maxbytes"},
      paramLabel = "SIZE",
      defaultValue = "32M",
      converter = OptionValue.Size.class,
      description = "the last size; default 32M")
  long maxBytes;

  @Option(
      names = {"-i", "--stepbytes"},
      paramLabel = "SIZE",
      converter = OptionValue.Size.class,
      description = "what is added to a size for the next; default 1M")
  Long stepBytes;

  @Option(
      names = {"-f", "--stepfactor"},
      paramLabel = "N",
      description =
          "what a size is multiplied with for the next; 2 or more, and then -i does not count")
  Integer stepFactor;

  /** Returns the sizes that are asked for. */
  Settings.Sizes wanted() {
    if (minBytes < 1) {
      throw new BadArguments("-b is " + minBytes + "; it must be 1 byte or more");
    }
    if (minBytes > maxBytes) {
      throw new BadArguments(
          "-b is " + minBytes + " and -e is " + maxBytes + "; -b must not be above -e");
    }
    if (stepFactor != null && stepFactor < 0) {
      throw new BadArguments("-f is " + stepFactor + "; it must be 2 or more, or 1 with -i");
    }
    if (stepFactor != null && stepFactor > 1) {
      return new Settings.Sizes(minBytes, maxBytes, stepFactor, 0);
    }
    long step = stepBytes == null ? 1 << 20 : stepBytes;
    boolean stuck = step == 0 || (stepFactor != null && stepBytes == null);
    if (minBytes < maxBytes && stuck) {
      throw new BadArguments(
          (stepFactor == null
                  ? "-i is 0"
                  : "-f is " + stepFactor + " and -i is " + (stepBytes == null ? "not given" : "0"))
              + "; from -b to -e it takes -f of 2 or more, or -i of 1 or more");
    }
    return new Settings.Sizes(minBytes, maxBytes, 1, step);
  }

  /**
   * Returns the same but for the largest size, which is cut down to what two buffers for each rank
   * and operation of a group leave room for, as nccl-tests does: in 7/8 of each GPU's memory, or in
   * half of this machine's, which others use as well.
   */
  Settings.Sizes withinMemory(List<Device> devices, int ranks, int aggregated) {
    long smallest = devices.stream().mapToLong(Device::memoryBytes).min().orElseThrow();
    boolean onHost = devices.getFirst().pciBusId().isEmpty();
    long room = onHost ? smallest / 2 / ranks : smallest / 8 * 7;
    long most = room / 2 / aggregated;
    Settings.Sizes wanted = wanted();
    return wanted.max() <= most ? wanted : wanted.withMost(most);
  }
}
