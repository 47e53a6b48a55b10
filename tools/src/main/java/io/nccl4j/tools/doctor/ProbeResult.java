package io.nccl4j.tools.doctor;

import static java.util.stream.Collectors.groupingBy;
import static java.util.stream.Collectors.mapping;
import static java.util.stream.Collectors.toList;

import io.nccl4j.internal.ffm.NativeLibrary;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * The result of an {@link AllReduceProbe}.
 *
 * @param end how its process ended
 * @param lastStep the last step that began; empty if none did
 * @param driver the newest CUDA version that the driver supports, such as 13000; 0 for no driver;
 *     empty if the probe did not get so far
 * @param versions the releases of the loaded libraries and the file of libnccl, by name
 * @param gpus the devices
 * @param missing the library that was not found, and every attempt to find it
 * @param cudaFailure the CUDA runtime call that failed
 * @param failure any other failure
 * @param mapped the mapped files of each library, by its label
 * @param sums the number of correct sums and the time taken; empty unless all sums were correct
 * @param output the last lines that the process printed
 */
record ProbeResult(
    ProcessEnd end,
    String lastStep,
    OptionalInt driver,
    Map<String, String> versions,
    List<Gpu> gpus,
    Optional<Missing> missing,
    Optional<CudaFailure> cudaFailure,
    Optional<String> failure,
    Map<String, List<String>> mapped,
    Optional<Sums> sums,
    List<String> output) {

  /** The name of NCCL's release in the versions. */
  static final String NCCL = "nccl";

  /** The name of NCCL's file in the versions. */
  static final String NCCL_LIBRARY = "nccl library";

  /** The name of the CUDA runtime's release in the versions. */
  static final String RUNTIME = "cuda runtime";

  /**
   * How a process ended.
   *
   * @param kind whether it exited with status 0, crashed or failed, or timed out
   * @param text the same as text, such as {@code was killed by signal 11}
   */
  record ProcessEnd(Kind kind, String text) {
    enum Kind {
      ENDED,
      CRASHED,
      TIMED_OUT
    }
  }

  /** A library that was not found: its label, the reason, and one line for each attempt. */
  record Missing(String library, String reason, List<String> attempts) {}

  /** A call of the CUDA runtime that failed. */
  record CudaFailure(String function, String error, String message) {}

  /** The number of correct sums, and the milliseconds since the first call. */
  record Sums(int count, long milliseconds) {}

  /** Returns the result of a probe whose process could not be started. */
  static ProbeResult notStarted(Exception reason) {
    return new ProbeResult(
        new ProcessEnd(ProcessEnd.Kind.CRASHED, "could not be started: " + reason),
        "",
        OptionalInt.empty(),
        Map.of(),
        List.of(),
        Optional.empty(),
        Optional.empty(),
        Optional.empty(),
        Map.of(),
        Optional.empty(),
        List.of());
  }

  /** Reads the log of a probe. */
  static ProbeResult of(ProgressLog log, ProcessEnd end, List<String> output) {
    Map<String, String> versions = new LinkedHashMap<>();
    log.entries(ProgressLog.VERSION).forEach(entry -> versions.put(entry.get(0), entry.get(1)));
    Map<String, List<String>> mapped =
        log.entries(ProgressLog.MAPPED).stream()
            .collect(groupingBy(List::getFirst, mapping(List::getLast, toList())));
    return new ProbeResult(
        end,
        log.last(ProgressLog.STEP).map(List::getFirst).orElse(""),
        log.last(ProgressLog.DRIVER).stream()
            .mapToInt(e -> Integer.parseInt(e.getFirst()))
            .findAny(),
        versions,
        log.entries(ProgressLog.DEVICE).stream().map(ProbeResult::gpu).toList(),
        log.last(ProgressLog.MISSING).map(entry -> missing(entry, log)),
        log.last(ProgressLog.CUDA_FAILURE)
            .map(entry -> new CudaFailure(entry.get(0), entry.get(1), entry.get(2))),
        failure(log),
        mapped,
        log.last(ProgressLog.RIGHT)
            .map(e -> new Sums(Integer.parseInt(e.get(0)), Long.parseLong(e.get(1)))),
        output);
  }

  private static Gpu gpu(List<String> entry) {
    return new Gpu(Integer.parseInt(entry.get(0)), entry.get(1), Integer.parseInt(entry.get(2)));
  }

  private static Missing missing(List<String> entry, ProgressLog log) {
    List<String> attempts = log.entries(ProgressLog.ATTEMPT).stream().map(List::getFirst).toList();
    return new Missing(entry.get(0), entry.get(1), attempts);
  }

  private static Optional<String> failure(ProgressLog log) {
    return log.last(ProgressLog.WRONG)
        .map(entry -> "the sum is wrong: " + entry.getFirst())
        .or(() -> log.last(ProgressLog.REFUSED).map(List::getFirst))
        .or(() -> log.last(ProgressLog.FAILURE).map(List::getFirst));
  }

  /** Returns whether the all-reduce was correct and everything was closed without failure. */
  boolean succeeded() {
    return end.kind() == ProcessEnd.Kind.ENDED
        && sums.isPresent()
        && failure.isEmpty()
        && cudaFailure.isEmpty();
  }

  /** Returns the mapped files of a library. */
  List<String> mapped(NativeLibrary library) {
    return mapped.getOrDefault(library.label(), List.of());
  }

  /** Returns the release of the NCCL that was loaded, such as 2.30.7. */
  Optional<String> ncclVersion() {
    return Optional.ofNullable(versions.get(NCCL));
  }

  /** Returns the CUDA runtime's version, such as 13.0. */
  Optional<String> runtimeVersion() {
    return Optional.ofNullable(versions.get(RUNTIME));
  }
}
