package io.nccl4j.tools.doctor;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * What became of an {@link AllReduceProbe}.
 *
 * @param end how its process ended
 * @param lastStep what it had begun last; empty if it did not even start
 * @param driver the newest CUDA that the driver runs, such as 13000, 0 for no driver; empty if the
 *     trial did not come so far
 * @param versions the libraries that were loaded: their releases, and the file of libnccl, by name
 * @param gpus the devices
 * @param missing the library that was not found, and everything that was tried
 * @param cudaFailure the call of the CUDA runtime that failed
 * @param failure whatever else failed
 * @param mapped the files of each library that the process had mapped, by the library's label
 * @param sums how many right sums came out; empty if none did
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

  /** The name of NCCL's release among the versions. */
  static final String NCCL = "nccl";

  /** The name of NCCL's file among the versions. */
  static final String NCCL_LIBRARY = "nccl library";

  /** The name of the CUDA runtime's release among the versions. */
  static final String RUNTIME = "cuda runtime";

  /**
   * How a process ended.
   *
   * @param kind of its own accord, by a crash, or because the time was over
   * @param text for people, such as {@code signal 11}
   */
  record ProcessEnd(Kind kind, String text) {
    enum Kind {
      ENDED,
      CRASHED,
      TIMED_OUT
    }
  }

  /** A library that was not found: its label, why, and what was tried, each in one line. */
  record Missing(String library, String reason, List<String> attempts) {}

  /** A call of the CUDA runtime that failed. */
  record CudaFailure(String function, String error, String message) {}

  /** How many right sums came out, and how many milliseconds it took from the first call on. */
  record Sums(int count, long milliseconds) {}

  /** Returns what is known of a trial that could not even be started. */
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

  /** Reads what a trial has written down. */
  static ProbeResult of(ProgressLog diary, ProcessEnd end, List<String> output) {
    Map<String, String> versions = new LinkedHashMap<>();
    diary.entries(ProgressLog.VERSION).forEach(entry -> versions.put(entry.get(0), entry.get(1)));
    Map<String, List<String>> mapped = new LinkedHashMap<>();
    for (NativeLibraryName library : NativeLibraryName.values()) {
      mapped.put(
          library.label(),
          diary.entries(ProgressLog.MAPPED).stream()
              .filter(entry -> entry.getFirst().equals(library.label()))
              .map(List::getLast)
              .toList());
    }
    return new ProbeResult(
        end,
        diary.last(ProgressLog.STEP).map(List::getFirst).orElse(""),
        diary.last(ProgressLog.DRIVER).stream()
            .mapToInt(e -> Integer.parseInt(e.getFirst()))
            .findAny(),
        versions,
        diary.entries(ProgressLog.DEVICE).stream().map(ProbeResult::gpu).toList(),
        diary.last(ProgressLog.MISSING).map(entry -> missing(entry, diary)),
        diary
            .last(ProgressLog.CUDA_FAILURE)
            .map(entry -> new CudaFailure(entry.get(0), entry.get(1), entry.get(2))),
        failure(diary),
        mapped,
        diary
            .last(ProgressLog.RIGHT)
            .map(e -> new Sums(Integer.parseInt(e.get(0)), Long.parseLong(e.get(1)))),
        output);
  }

  private static Gpu gpu(List<String> entry) {
    return new Gpu(Integer.parseInt(entry.get(0)), entry.get(1), Integer.parseInt(entry.get(2)));
  }

  private static Missing missing(List<String> entry, ProgressLog diary) {
    List<String> attempts =
        diary.entries(ProgressLog.ATTEMPT).stream().map(List::getFirst).toList();
    return new Missing(entry.get(0), entry.get(1), attempts);
  }

  private static Optional<String> failure(ProgressLog diary) {
    return diary
        .last(ProgressLog.WRONG)
        .map(entry -> "the sum is wrong: " + entry.getFirst())
        .or(() -> diary.last(ProgressLog.REFUSED).map(List::getFirst))
        .or(() -> diary.last(ProgressLog.FAILURE).map(List::getFirst));
  }

  /** Returns whether a collective has really run, and was right, and all was closed again. */
  boolean succeeded() {
    return end.kind() == ProcessEnd.Kind.ENDED
        && sums.isPresent()
        && failure.isEmpty()
        && cudaFailure.isEmpty();
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
