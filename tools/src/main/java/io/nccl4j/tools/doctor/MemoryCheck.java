package io.nccl4j.tools.doctor;

import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/** The memory of the container: whether its limit leaves room. */
final class MemoryCheck implements Check {
  private static final long WANTED = Bytes.GIB;
  private static final String CGROUPS = "/sys/fs/cgroup";

  /**
   * One limit.
   *
   * @param bytes the limit
   * @param used what counts against it now and cannot be given back at once
   * @param file where it stands
   */
  private record Limit(long bytes, long used, String file) {
    long free() {
      return Math.max(0, bytes - used);
    }
  }

  @Override
  public String name() {
    return "container memory";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    return tightest(evidence.machine())
        .filter(limit -> limit.free() < WANTED)
        .map(
            limit ->
                List.of(
                    Finding.warning(
                        "%s is left of the %s that the container may use (%s)"
                            .formatted(
                                Bytes.text(limit.free()), Bytes.text(limit.bytes()), limit.file()),
                        "CUDA, NCCL's pinned buffers and /dev/shm count against it; beyond it the"
                            + " kernel kills the process without a word",
                        "raise it: --memory of the container, resources.limits.memory of the pod,"
                            + " --mem of Slurm")))
        .orElse(List.of());
  }

  private static Optional<Limit> tightest(Machine machine) {
    String groups = machine.text("/proc/self/cgroup").orElse("");
    Optional<Limit> tightest = Optional.empty();
    for (String line : groups.lines().toList()) {
      String[] parts = line.split(":", 3);
      if (parts.length == 3 && parts[0].equals("0")) {
        tightest = smaller(tightest, upwards(machine, CGROUPS, parts[2], "memory.max"));
      } else if (parts.length == 3 && List.of(parts[1].split(",", -1)).contains("memory")) {
        tightest =
            smaller(
                tightest, upwards(machine, CGROUPS + "/memory", parts[2], "memory.limit_in_bytes"));
      }
    }
    return tightest;
  }

  /** Every group on the way to the root limits this process; in a container only the last shows. */
  private static Optional<Limit> upwards(Machine machine, String mount, String group, String file) {
    Optional<Limit> tightest = Optional.empty();
    for (String path = group; ; path = path.substring(0, path.lastIndexOf('/'))) {
      String folder = mount + (path.equals("/") ? "" : path);
      tightest = smaller(tightest, limit(machine, folder, file));
      if (path.isEmpty() || path.equals("/") || path.lastIndexOf('/') < 0) {
        return tightest;
      }
    }
  }

  private static Optional<Limit> limit(Machine machine, String folder, String file) {
    OptionalLong bytes = number(machine.text(folder + "/" + file));
    if (bytes.isEmpty()) {
      return Optional.empty();
    }
    boolean second = file.equals("memory.max");
    long current =
        number(machine.text(folder + (second ? "/memory.current" : "/memory.usage_in_bytes")))
            .orElse(0);
    long cache =
        machine.text(folder + "/memory.stat").stream()
            .flatMap(String::lines)
            .filter(line -> line.startsWith(second ? "inactive_file " : "total_inactive_file "))
            .mapToLong(line -> Long.parseLong(line.substring(line.indexOf(' ') + 1)))
            .findFirst()
            .orElse(0);
    return Optional.of(
        new Limit(bytes.getAsLong(), Math.max(0, current - cache), folder + "/" + file));
  }

  /** Returns the number in a file; none for {@code max}, which is no limit. */
  private static OptionalLong number(Optional<String> text) {
    return text.map(String::strip).filter(value -> value.matches("[0-9]{1,19}")).stream()
        .mapToLong(Long::parseLong)
        .findFirst();
  }

  private static Optional<Limit> smaller(Optional<Limit> one, Optional<Limit> other) {
    if (one.isEmpty() || other.isEmpty()) {
      return one.or(() -> other);
    }
    return one.get().free() <= other.get().free() ? one : other;
  }
}
