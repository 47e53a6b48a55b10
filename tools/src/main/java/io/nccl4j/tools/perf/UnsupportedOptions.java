package io.nccl4j.tools.perf;

import picocli.CommandLine.Option;

/** Options of nccl-tests that are accepted only with their default values. */
final class UnsupportedOptions {
  @Option(
      names = {"-y", "--stream_null"},
      paramLabel = "N",
      defaultValue = "0",
      hidden = true)
  int nullStream;

  @Option(
      names = {"-R", "--local_register"},
      paramLabel = "N",
      defaultValue = "0",
      hidden = true)
  int register;

  @Option(
      names = {"-x", "--cta_policy"},
      paramLabel = "N",
      defaultValue = "-1",
      hidden = true)
  int ctaPolicy;

  @Option(
      names = {"-D", "--device_implementation"},
      paramLabel = "N",
      defaultValue = "0",
      hidden = true)
  int deviceImplementation;

  @Option(
      names = {"-V", "--device_cta_count"},
      paramLabel = "N",
      defaultValue = "16",
      hidden = true)
  int deviceCtas;

  @Option(
      names = {"-M", "--memory"},
      paramLabel = "N",
      defaultValue = "0",
      hidden = true)
  int memoryReport;

  /** Rejects options that are not at their defaults. */
  void check() {
    reject(nullStream != 0, "-y", "nccl4j has no null stream; omit it or give 0");
    reject(register != 0, "-R", "buffers are not registered yet; omit it or give 0");
    reject(
        ctaPolicy != -1, "-x", "the CTA policy cannot be set yet; omit it or set NCCL_CTA_POLICY");
    reject(deviceImplementation != 0, "-D", "Java has no device code; omit it or give 0");
    reject(deviceCtas != 16, "-V", "Java has no device code; omit it");
    reject(memoryReport != 0, "-M", "memory is not reported yet; omit it or give 0");
  }

  private static void reject(boolean given, String flag, String reason) {
    if (given) {
      throw new BadArguments(flag + " is not supported: " + reason);
    }
  }
}
