package io.nccl4j.tools.doctor;

import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.tools.cli.ByteSize;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Checks the limits on open files and, if there is InfiniBand, on locked memory. */
final class LimitsCheck {
  private static final String LIMITS = "/proc/self/limits";
  private static final long OPEN_FILES = 4096;
  private static final long SOCKETS_PER_RANK = 2;

  private LimitsCheck() {}

  static List<Finding> findings(MachineState state) {
    Optional<String> limits = state.machine().text(LIMITS);
    if (limits.isEmpty()) {
      return List.of(
          Finding.unchecked(
              "the limits on open files and locked memory",
              LIMITS + " does not exist",
              "mount /proc, or check ulimit -a"));
    }
    List<Finding> findings = new ArrayList<>();
    int ranks = state.launch().map(LaunchEnvironment::size).orElse(1);
    openFiles(hard(limits.get(), "Max open files"), ranks).ifPresent(findings::add);
    if (!NetworkCheck.infinibandDevices(state.machine()).isEmpty()) {
      lockedMemory(hard(limits.get(), "Max locked memory")).ifPresent(findings::add);
    }
    return findings;
  }

  /** Returns a hard limit, to which Java and NCCL raise the soft limit; empty for unlimited. */
  private static OptionalLong hard(String limits, String name) {
    Matcher line =
        Pattern.compile("^" + name + " +\\S+ +(\\S+)", Pattern.MULTILINE).matcher(limits);
    return line.find() && !line.group(1).equals("unlimited")
        ? OptionalLong.of(Long.parseLong(line.group(1)))
        : OptionalLong.empty();
  }

  private static Optional<Finding> openFiles(OptionalLong limit, int ranks) {
    long recommended = OPEN_FILES + SOCKETS_PER_RANK * ranks;
    if (limit.isEmpty() || limit.getAsLong() >= recommended) {
      return Optional.empty();
    }
    return Optional.of(
        Finding.warning(
            "the limit on open files is %d; at least %d is recommended for %d %s"
                .formatted(limit.getAsLong(), recommended, ranks, ranks == 1 ? "rank" : "ranks"),
            "NCCL opens sockets to every rank when it connects, and several per peer and channel"
                + " between hosts; beyond the limit it fails with 'Too many open files'",
            "raise the hard limit: ulimit -Hn 65536, LimitNOFILE= in a systemd unit, --ulimit"
                + " nofile=65536 for a container"));
  }

  private static Optional<Finding> lockedMemory(OptionalLong limit) {
    if (limit.isEmpty()) {
      return Optional.empty();
    }
    return Optional.of(
        Finding.warning(
            "the limit on locked memory is %s, and this machine has InfiniBand"
                .formatted(ByteSize.text(limit.getAsLong())),
            "network buffers are locked in memory; beyond the limit ibv_reg_mr fails with 'Cannot"
                + " allocate memory'",
            "remove the limit: memlock unlimited in /etc/security/limits.conf,"
                + " LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container"));
  }
}
