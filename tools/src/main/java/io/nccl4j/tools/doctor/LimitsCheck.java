package io.nccl4j.tools.doctor;

import io.nccl4j.rendezvous.LaunchEnvironment;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The limits of a process: open files, and locked memory where there is InfiniBand. */
final class LimitsCheck implements Check {
  private static final String LIMITS = "/proc/self/limits";
  private static final long OPEN_FILES = 4096;
  private static final long SOCKETS_PER_RANK = 2;

  @Override
  public String name() {
    return "limits";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    Optional<String> limits = evidence.machine().text(LIMITS);
    if (limits.isEmpty()) {
      return List.of(
          Finding.unchecked(
              "the limits on open files and locked memory",
              "there is no " + LIMITS + " to read",
              "mount /proc, or look at ulimit -a"));
    }
    List<Finding> findings = new ArrayList<>();
    int ranks = evidence.launch().map(LaunchEnvironment::size).orElse(1);
    openFiles(hard(limits.get(), "Max open files"), ranks).ifPresent(findings::add);
    if (!NetworkCheck.infinibandDevices(evidence.machine()).isEmpty()) {
      lockedMemory(hard(limits.get(), "Max locked memory")).ifPresent(findings::add);
    }
    return findings;
  }

  /** Returns a hard limit, to which Java and NCCL raise the soft one; nothing for unlimited. */
  private static OptionalLong hard(String limits, String name) {
    Matcher line =
        Pattern.compile("^" + name + " +\\S+ +(\\S+)", Pattern.MULTILINE).matcher(limits);
    return line.find() && !line.group(1).equals("unlimited")
        ? OptionalLong.of(Long.parseLong(line.group(1)))
        : OptionalLong.empty();
  }

  private static Optional<Finding> openFiles(OptionalLong limit, int ranks) {
    long wanted = OPEN_FILES + SOCKETS_PER_RANK * ranks;
    if (limit.isEmpty() || limit.getAsLong() >= wanted) {
      return Optional.empty();
    }
    return Optional.of(
        Finding.warning(
            "at most %d files may be open; %d or more is advised for %d %s"
                .formatted(limit.getAsLong(), wanted, ranks, ranks == 1 ? "rank" : "ranks"),
            "NCCL opens sockets to every rank at first contact, and several per peer and channel"
                + " between hosts; it then fails with 'Too many open files'",
            "raise the hard limit: ulimit -Hn 65536, LimitNOFILE= of a systemd unit, --ulimit"
                + " nofile=65536 of a container"));
  }

  private static Optional<Finding> lockedMemory(OptionalLong limit) {
    if (limit.isEmpty()) {
      return Optional.empty();
    }
    return Optional.of(
        Finding.warning(
            "at most %s of memory may be locked, and there is InfiniBand"
                .formatted(Bytes.text(limit.getAsLong())),
            "buffers for the network are locked; beyond the limit ibv_reg_mr fails with 'Cannot"
                + " allocate memory'",
            "lift the limit: memlock unlimited in /etc/security/limits.conf, LimitMEMLOCK=infinity"
                + " of a systemd unit, --ulimit memlock=-1 of a container"));
  }
}
