package io.nccl4j.tools.doctor;

import io.nccl4j.tools.cli.ByteSize;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/** Checks that the memory limit of the container leaves enough memory. */
final class MemoryCheck {
  private static final long MIN_FREE = 1L << 30;
  private static final String CGROUPS = "/sys/fs/cgroup";

  /**
   * The memory limit of one control group.
   *
   * @param bytes the limit
   * @param used the bytes that count against it, without page cache that can be reclaimed at once
   * @param file the file that holds the limit
   */
  private record Limit(long bytes, long used, String file) {
    long free() {
      return Math.max(0, bytes - used);
    }
  }

  private MemoryCheck() {}

  static List<Finding> findings(MachineState state) {
    return tightest(state.machine())
        .filter(limit -> limit.free() < MIN_FREE)
        .map(
            limit ->
                List.of(
                    Finding.warning(
                        "%s is left of the %s that the container may use (%s)"
                            .formatted(
                                ByteSize.text(limit.free()),
                                ByteSize.text(limit.bytes()),
                                limit.file()),
                        "CUDA, NCCL's pinned buffers and /dev/shm count against it; the kernel"
                            + " kills a process that exceeds it, without a message",
                        "raise it: --memory for a container, resources.limits.memory for a pod,"
                            + " --mem for Slurm")))
        .orElse(List.of());
  }

  private static Optional<Limit> tightest(Machine machine) {
    String groups = machine.text("/proc/self/cgroup").orElse("");
    Optional<Limit> tightest = Optional.empty();
    for (String line : groups.lines().toList()) {
      String[] parts = line.split(":", 3);
      if (parts.length == 3 && parts[0].equals("0")) {
        tightest = smaller(tightest, ofAncestors(machine, CGROUPS, parts[2], "memory.max"));
      } else if (parts.length == 3 && List.of(parts[1].split(",", -1)).contains("memory")) {
        tightest =
            smaller(
                tightest,
                ofAncestors(machine, CGROUPS + "/memory", parts[2], "memory.limit_in_bytes"));
      }
    }
    return tightest;
  }

  /**
   * Returns the tightest limit of a group and its ancestors, which all limit this process. In a
   * container only the outermost one is visible.
   */
  private static Optional<Limit> ofAncestors(
      Machine machine, String mount, String group, String file) {
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
    boolean version2 = file.equals("memory.max");
    long current =
        number(machine.text(folder + (version2 ? "/memory.current" : "/memory.usage_in_bytes")))
            .orElse(0);
    long cache =
        machine.text(folder + "/memory.stat").stream()
            .flatMap(String::lines)
            .filter(line -> line.startsWith(version2 ? "inactive_file " : "total_inactive_file "))
            .mapToLong(line -> Long.parseLong(line.substring(line.indexOf(' ') + 1)))
            .findFirst()
            .orElse(0);
    return Optional.of(
        new Limit(bytes.getAsLong(), Math.max(0, current - cache), folder + "/" + file));
  }

  /** Parses a number; empty for {@code max}, which means no limit. */
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
