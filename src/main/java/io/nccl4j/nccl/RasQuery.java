package io.nccl4j.nccl;

import io.nccl4j.internal.ffm.NativeEnvironment;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.plugin.NcclEnvironment;
import io.nccl4j.ras.RasClient;
import io.nccl4j.ras.RasStatus;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.CommunicatorContext;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.logging.log4j.Logger;

/**
 * Asks NCCL's RAS service which ranks of a communicator do not answer, have left, or have called
 * fewer collectives than this rank. Calls neither NCCL nor CUDA.
 *
 * <p>The ranks call the collectives of a communicator in one order, so if a rank has a lower count
 * of any kind than this rank, it has not called an operation that this rank has called. NCCL counts
 * each kind alone: a rank that is behind in one kind and ahead in another calls other operations. A
 * rank that is behind need not be the cause: it may itself wait for an earlier operation.
 */
final class RasQuery {
  private static final Logger LOG = Loggers.of("io.nccl4j.nccl.NcclCommunicator");

  private static final Duration TIMEOUT = Duration.ofSeconds(5);

  /** Earlier releases may crash if they are asked while ranks are missing, which is now likely. */
  private static final NcclVersion SAFE = NcclVersion.of(2, 29, 2);

  private static final int MOST_PROCESSES = 4;

  private RasQuery() {}

  /**
   * Returns what the service tells about a communicator, or why it does not; empty if it cannot be
   * asked. Takes at most five seconds.
   *
   * @param hash the communicator's hash, if it is known
   */
  static Optional<Awaited> ask(
      NcclVersion library, CommunicatorContext context, OptionalLong hash) {
    if (!library.atLeast(SAFE)) {
      LOG.debug(
          "{}: the RAS service of NCCL {} is not asked who is late, since it may crash before {}",
          context,
          library,
          SAFE);
      return Optional.empty();
    }
    if (NcclEnvironment.isInstalled()) {
      return Optional.of(unknown("with a NcclEnvironment NCCL does not report the ranks"));
    }
    if (NativeEnvironment.get("NCCL_RAS_ENABLE").filter("0"::equals).isPresent()) {
      return Optional.of(unknown("NCCL_RAS_ENABLE=0, so NCCL does not report the ranks"));
    }
    String address = NativeEnvironment.get("NCCL_RAS_ADDR").orElse(RasClient.DEFAULT_ADDRESS);
    try {
      return Optional.of(ask(RasClient.of(address), context, hash));
    } catch (IOException | IllegalArgumentException e) {
      LOG.debug("{}: NCCL's RAS service at {} was not asked", context, address, e);
      return Optional.of(unknown("NCCL does not report the ranks: " + reason(e)));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return Optional.empty();
    }
  }

  private static String reason(Exception e) {
    return Objects.requireNonNullElse(e.getMessage(), e.toString());
  }

  /** Asks until a process of this job answers: those of other jobs may listen there, too. */
  private static Awaited ask(RasClient client, CommunicatorContext context, OptionalLong hash)
      throws IOException, InterruptedException {
    Deadline deadline = Deadline.after(TIMEOUT);
    Backoff backoff = Backoff.betweenAttempts(deadline);
    int found = 0;
    do {
      List<RasStatus.Communicator> own =
          client.status(Duration.ofMillis(deadline.remainingMillis())).communicators().stream()
              .filter(communicator -> isOwn(communicator, context, hash))
              .toList();
      if (own.size() == 1) {
        return describe(own.getFirst(), context.rank());
      }
      found = own.size();
    } while (found == 0 && backoff.pause() && !deadline.passed());
    return unknown(
        found == 0
            ? "NCCL's RAS service at " + client + " answered for other jobs only"
            : "NCCL's RAS service reports %d communicators like this one, so its ranks are not known"
                .formatted(found));
  }

  /** Returns whether a communicator has this process's rank and, if it is known, the hash. */
  private static boolean isOwn(
      RasStatus.Communicator communicator, CommunicatorContext context, OptionalLong hash) {
    return communicator.size() == context.size()
        && (hash.isEmpty() || communicator.hash() == hash.getAsLong())
        && communicator.ranks().stream()
            .anyMatch(
                rank ->
                    rank.rank() == context.rank()
                        && rank.pid() == ProcessHandle.current().pid()
                        && rank.cudaDevice() == context.device());
  }

  private static Awaited unknown(String text) {
    return new Awaited(text, new BitSet());
  }

  /**
   * Describes who is missing in a communicator.
   *
   * @param self this rank, which is among those that reported
   */
  static Awaited describe(RasStatus.Communicator communicator, int self) {
    List<String> texts = new ArrayList<>();
    BitSet failed = missing(communicator, texts);
    BitSet behind = behind(communicator, self, texts);
    return new Awaited(String.join("; ", texts), behind, failed);
  }

  /** Why no process reported a rank. */
  private enum Absence {
    DEAD("is considered dead", "are considered dead"),
    SILENT("does not answer", "do not answer"),
    LEFT("has left the communicator", "have left the communicator");

    private final String ofOne;
    private final String ofSeveral;

    Absence(String ofOne, String ofSeveral) {
      this.ofOne = ofOne;
      this.ofSeveral = ofSeveral;
    }

    static Absence of(RasStatus.MissingRank rank) {
      return rank.consideredDead() ? DEAD : rank.unresponsive() ? SILENT : LEFT;
    }
  }

  /** Describes the ranks that no process reported, and returns them. */
  private static BitSet missing(RasStatus.Communicator communicator, List<String> texts) {
    BitSet all = new BitSet();
    for (Absence absence : Absence.values()) {
      BitSet ranks = new BitSet();
      Processes processes = new Processes();
      for (RasStatus.MissingRank rank : communicator.missingRanks()) {
        if (Absence.of(rank) == absence) {
          ranks.set(rank.rank());
          processes.add(rank.host(), rank.pid());
        }
      }
      if (!ranks.isEmpty()) {
        String state = ranks.cardinality() == 1 ? absence.ofOne : absence.ofSeveral;
        texts.add(RankSets.describe(ranks) + " " + state + processes);
        all.or(ranks);
      }
    }
    return all;
  }

  /** Describes the ranks that have called fewer collectives than this rank, and returns them. */
  private static BitSet behind(RasStatus.Communicator communicator, int self, List<String> texts) {
    Map<String, Long> own =
        communicator.ranks().stream()
            .filter(rank -> rank.rank() == self)
            .findFirst()
            .orElseThrow()
            .calls();
    BitSet behind = new BitSet();
    BitSet ahead = new BitSet();
    for (RasStatus.Rank rank : communicator.ranks()) {
      rank.calls()
          .forEach(
              (kind, count) -> {
                long called = own.getOrDefault(kind, 0L);
                if (count < called) {
                  behind.set(rank.rank());
                } else if (count > called) {
                  ahead.set(rank.rank());
                }
              });
    }
    BitSet different = (BitSet) behind.clone();
    different.and(ahead);
    own.forEach((kind, called) -> texts.addAll(counts(communicator, behind, kind, called)));
    if (!different.isEmpty()) {
      texts.add(RankSets.describe(different) + " called other collectives than this rank");
      behind.andNot(different);
    } else if (behind.isEmpty() && texts.isEmpty()) {
      texts.add(
          (ahead.isEmpty()
                  ? "all ranks have called the same collectives"
                  : "no rank has called fewer collectives than this one")
              + ", so NCCL does not tell which rank is late; it counts neither sends and receives nor captured operations");
    }
    return behind;
  }

  /** Describes which of some ranks have called fewer collectives of a kind than this rank. */
  private static List<String> counts(
      RasStatus.Communicator communicator, BitSet ranks, String kind, long called) {
    SortedMap<Long, BitSet> byCount = new TreeMap<>();
    Map<Long, Processes> processes = new TreeMap<>();
    for (RasStatus.Rank rank : communicator.ranks()) {
      long count = rank.calls().getOrDefault(kind, 0L);
      if (ranks.get(rank.rank()) && count < called) {
        byCount.computeIfAbsent(count, _ -> new BitSet()).set(rank.rank());
        processes.computeIfAbsent(count, _ -> new Processes()).add(rank.host(), rank.pid());
      }
    }
    List<String> texts = new ArrayList<>();
    byCount.forEach(
        (count, late) ->
            texts.add(
                "%s %d: %s %s called %s%s"
                    .formatted(
                        words(kind),
                        called,
                        RankSets.describe(late),
                        late.cardinality() == 1 ? "has" : "have",
                        count == 0 ? "none" : "" + count,
                        processes.get(count))));
    return texts;
  }

  /** Returns NCCL's name of a kind of collective in words, such as {@code all-reduce}. */
  private static String words(String kind) {
    return kind.replaceAll("(?<=[a-z])(?=[A-Z])", "-").toLowerCase(Locale.ROOT);
  }

  /** Processes, of which a message names the first few. */
  private static final class Processes {
    private final TreeSet<String> names = new TreeSet<>();

    void add(String host, int pid) {
      names.add("host " + host + ", process " + pid);
    }

    @Override
    public String toString() {
      String more = names.size() > MOST_PROCESSES ? ", and more" : "";
      return names.stream()
          .limit(MOST_PROCESSES)
          .collect(Collectors.joining("; ", " (", more + ")"));
    }
  }
}
