package io.nccl4j.tools.perf;

import io.nccl4j.Device;
import java.util.List;
import picocli.CommandLine.Option;

/** The options for the sizes of a table. */
final class SizeOptions {
  @Option(
      names = {"-b", "--minbytes"},
      paramLabel = "SIZE",
      defaultValue = "32M",
      description = "the first size; default 32M")
  long minBytes;

  @Option(
      names = {"-e", "--maxbytes"},
      paramLabel = "SIZE",
      defaultValue = "32M",
      description = "the last size; default 32M")
  long maxBytes;

  @Option(
      names = {"-i", "--stepbytes"},
      paramLabel = "SIZE",
      description = "added to a size to get the next; default 1M")
  Long stepBytes;

  @Option(
      names = {"-f", "--stepfactor"},
      paramLabel = "N",
      description = "multiplies a size to get the next; 2 or more, which overrides -i")
  Integer stepFactor;

  /**
   * Returns the requested sizes.
   *
   * @throws BadArguments if the options contradict each other
   */
  Settings.Sizes requested() {
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
              + "; give -f of 2 or more, or -i of 1 or more, to get from -b to -e");
    }
    return new Settings.Sizes(minBytes, maxBytes, 1, step);
  }

  /**
   * Returns the requested sizes, with the largest one limited by memory as in nccl-tests. Each rank
   * needs two buffers for each operation of a group, within 7/8 of its GPU's memory, or within the
   * rank's share of half of the host's memory.
   */
  Settings.Sizes withinMemory(List<Device> devices, int ranks, int aggregated) {
    long smallest = devices.stream().mapToLong(Device::memoryBytes).min().orElseThrow();
    boolean onHost = devices.getFirst().pciBusId().isEmpty();
    long usable = onHost ? smallest / 2 / ranks : smallest / 8 * 7;
    long maxSize = usable / 2 / aggregated;
    Settings.Sizes requested = requested();
    return requested.max() <= maxSize ? requested : requested.withMaxBytes(maxSize);
  }
}
