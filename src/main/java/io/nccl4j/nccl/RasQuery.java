package io.nccl4j.nccl;

import io.nccl4j.NcclResult;
import io.nccl4j.Operation;
import io.nccl4j.internal.ffm.NativeEnvironment;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.plugin.NcclEnvironment;
import io.nccl4j.ras.RasClient;
import io.nccl4j.ras.RasStatus;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.CallCount;
import io.nccl4j.spi.CommunicatorContext;
import java.io.IOException;
import java.net.ConnectException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.logging.log4j.Logger;

/**
 * Asks NCCL's RAS service which ranks of a communicator do not answer, have left, report an error,
 * or have not called the collective that this rank's device has not completed. Calls neither NCCL
 * nor CUDA.
 *
 * <p>NCCL counts the calls of each kind of collective alone, some of them not at all, and each
 * before it returns. This rank may have called the same kind again since; if it does so while it
 * asks and nobody is named, it asks again. The ranks call the collectives of a communicator in one
 * order, so a rank with a lower count than this rank had at that collective has not called it; if
 * it is ahead in another kind, it calls other operations. All other ranks wait, or have not begun
 * to.
 */
final class RasQuery {
  private static final Logger LOG = Loggers.of("io.nccl4j.nccl.NcclCommunicator");

  private static final Duration TIMEOUT = Duration.ofSeconds(5);

  /** Earlier releases may crash if they are asked while ranks are missing, which is now likely. */
  private static final NcclVersion SAFE = NcclVersion.of(2, 29, 2);

  private static final int MOST_PROCESSES = 4;
  private static final int MOST_COUNTS = 4;

  private static final String UNKNOWN = ", so it does not tell which rank is late";
  private static final String UNCOUNTED =
      "NCCL counts neither sends and receives nor captured operations" + UNKNOWN;

  private final int self;
  private final Operation operation;
  private final Supplier<CallCount> calls;

  /**
   * Creates a query.
   *
   * @param self this rank
   * @param operation the collective that this rank's device has not completed, or null if it is not
   *     known
   * @param calls returns where it is among this rank's calls
   */
  RasQuery(int self, Operation operation, Supplier<CallCount> calls) {
    this.self = self;
    this.operation = operation;
    this.calls = calls;
  }

  /**
   * Returns what the service tells about a communicator, or why it does not; empty if it cannot be
   * asked. Takes at most five seconds.
   *
   * @param hash the communicator's hash, if it is known
   */
  Optional<Awaited> ask(NcclVersion library, CommunicatorContext context, OptionalLong hash) {
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
      return Optional.of(ask(RasClient.of(address).safe(), context, hash));
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

  /**
   * Asks until a process of this job has answered for all others. Processes of other jobs may
   * listen there, too, and of other releases. NCCL goes around processes that are silent only after
   * a few seconds; until then, those behind them seem to be silent as well. A process that is
   * creating a communicator, such as in a recovery, may leave out the ranks that no process
   * reported ({@code src/ras/collectives.cc}, 712); another process may answer next.
   */
  private Awaited ask(RasClient client, CommunicatorContext context, OptionalLong hash)
      throws IOException, InterruptedException {
    Deadline deadline = Deadline.after(TIMEOUT);
    Backoff backoff = Backoff.betweenAttempts(deadline);
    Awaited incomplete = null;
    IOException failure = null;
    boolean answered = false;
    do {
      try {
        CallCount before = calls.get();
        RasStatus status = client.status(Duration.ofMillis(deadline.remainingMillis()));
        answered = true;
        List<RasStatus.Communicator> own =
            status.communicators().stream()
                .filter(communicator -> isOwn(communicator, context, hash))
                .toList();
        if (own.size() > 1) {
          return unknown(
              "NCCL's RAS service reports %d communicators like this one, so its ranks are not known"
                  .formatted(own.size()));
        }
        if (own.size() == 1) {
          boolean complete = status.timeouts() == 0;
          CallCount after = calls.get();
          Awaited answer = describe(own.getFirst(), complete, after);
          boolean certain =
              before.equals(after) || !answer.ranks().isEmpty() || !answer.failed().isEmpty();
          if (certain && complete && unlisted(own.getFirst()).isEmpty()) {
            return answer;
          }
          incomplete =
              certain
                  ? answer
                  : unknown(answer.text() + "; this rank has called " + words() + " meanwhile");
        }
      } catch (IOException e) {
        LOG.debug("{}: NCCL's RAS service at {} was not asked", context, client, e);
        failure = failure == null ? e : failure; // Later ones may be for lack of time only.
        if (e instanceof ConnectException) {
          break; // Nobody listens.
        }
      }
    } while (backoff.pause() && !deadline.passed());
    if (incomplete != null) {
      return incomplete;
    }
    if (!answered) {
      throw failure;
    }
    return unknown("NCCL's RAS service at " + client + " answered for other jobs only");
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
   * @param communicator has this rank among those that reported
   * @param complete whether all processes that are not silent have reported
   * @param own where the operation is among this rank's calls, at the time of the answer or later
   */
  Awaited describe(RasStatus.Communicator communicator, boolean complete, CallCount own) {
    List<String> texts = new ArrayList<>();
    BitSet failed = missing(communicator, complete, texts);
    long count = operation == null ? 0 : own(communicator).getOrDefault(kind(), 0L);
    boolean foreign =
        own.number() > 0 && count > own.number() + Math.max(own.later(), 0) + own.pending();
    long number = foreign ? 0 : number(count, own);
    BitSet behind = number > 0 ? behind(communicator, number, texts) : new BitSet();
    states(communicator, texts);
    if (!complete) {
      texts.add("not all processes have answered NCCL yet");
    } else if (texts.isEmpty() && operation == null) {
      texts.add(UNCOUNTED);
    } else if (texts.isEmpty() && foreign) {
      texts.add("NCCL has counted calls of " + words() + " that nccl4j has not" + UNKNOWN);
    } else if (texts.isEmpty() && number <= 0) {
      texts.add("NCCL has not counted this " + words() + UNKNOWN);
    } else if (texts.isEmpty()) {
      texts.add(
          "all ranks have called %s %d, so NCCL does not tell which rank is late"
              .formatted(words(), number));
    }
    return new Awaited(String.join("; ", texts), behind, failed);
  }

  /** Why no process reported a rank. */
  private enum Absence {
    DEAD("is considered dead", "are considered dead"),
    SILENT("does not answer", "do not answer"),
    LEFT("has left the communicator", "have left the communicator"),
    /** Its process may be well: RAS may be turned off there. */
    UNKNOWN("is not known to NCCL's RAS service", "are not known to NCCL's RAS service");

    private final String ofOne;
    private final String ofSeveral;

    Absence(String ofOne, String ofSeveral) {
      this.ofOne = ofOne;
      this.ofSeveral = ofSeveral;
    }

    static Absence of(RasStatus.MissingRank rank) {
      if (rank.consideredDead()) {
        return DEAD;
      }
      if (rank.pid() < 0) {
        return UNKNOWN;
      }
      return rank.unresponsive() ? SILENT : LEFT;
    }

    String describe(Members ranks) {
      return ranks.text(ofOne, ofSeveral);
    }
  }

  /** Returns the ranks about which the answer says nothing. */
  private static BitSet unlisted(RasStatus.Communicator communicator) {
    BitSet unlisted = new BitSet();
    unlisted.set(0, communicator.size());
    communicator.ranks().forEach(rank -> unlisted.clear(rank.rank()));
    communicator.missingRanks().forEach(rank -> unlisted.clear(rank.rank()));
    return unlisted;
  }

  /** Describes the ranks that no process reported; returns those that are lost. */
  private static BitSet missing(
      RasStatus.Communicator communicator, boolean complete, List<String> texts) {
    Map<Absence, Members> absent = new TreeMap<>();
    for (RasStatus.MissingRank rank : communicator.missingRanks()) {
      absent
          .computeIfAbsent(Absence.of(rank), _ -> new Members())
          .add(rank.rank(), rank.host(), rank.pid());
    }
    BitSet unlisted = unlisted(communicator);
    if (!unlisted.isEmpty()) {
      absent.computeIfAbsent(Absence.UNKNOWN, _ -> new Members()).ranks.or(unlisted);
    }
    BitSet failed = new BitSet();
    absent.forEach(
        (absence, members) -> {
          texts.add(absence.describe(members));
          boolean certain = complete || absence != Absence.SILENT;
          if (certain && absence != Absence.UNKNOWN) {
            failed.or(members.ranks);
          }
        });
    return failed;
  }

  /** Returns how NCCL names the operation. */
  private String kind() {
    return operation.function().substring("nccl".length());
  }

  /** Returns this rank's count at the operation; 0 or less if NCCL has not counted it. */
  private static long number(long count, CallCount own) {
    if (own.later() < 0) {
      return count < own.number() ? 0 : own.number();
    }
    long number = count - own.later();
    // If NCCL has not counted all calls, it may have counted those that have not returned.
    return number < own.number() ? number - own.pending() : own.number();
  }

  /** Returns the operation in words, such as {@code all-reduce}. */
  private String words() {
    return operation.method().replaceAll("(?=[A-Z])", "-").toLowerCase(Locale.ROOT);
  }

  private Map<String, Long> own(RasStatus.Communicator communicator) {
    return communicator.ranks().stream()
        .filter(rank -> rank.rank() == self)
        .findFirst()
        .orElseThrow()
        .calls();
  }

  /**
   * Describes the ranks that have not called the operation, and returns them.
   *
   * @param number this rank's count at the operation
   */
  private BitSet behind(RasStatus.Communicator communicator, long number, List<String> texts) {
    Map<String, Long> own = own(communicator);
    TreeMap<Long, Members> late = new TreeMap<>();
    Members different = new Members();
    BitSet behind = new BitSet();
    for (RasStatus.Rank rank : communicator.ranks()) {
      long count = rank.calls().getOrDefault(kind(), 0L);
      if (count >= number) {
        continue;
      }
      if (rank.calls().entrySet().stream()
          .anyMatch(other -> other.getValue() > own.getOrDefault(other.getKey(), 0L))) {
        different.add(rank);
      } else {
        late.computeIfAbsent(count, _ -> new Members()).add(rank);
        behind.set(rank.rank());
      }
    }
    String call = words() + " " + number + ": ";
    late.entrySet().stream()
        .limit(MOST_COUNTS)
        .forEach(
            same -> {
              String count = same.getKey() == 0 ? "none" : same.getKey().toString();
              texts.add(call + same.getValue().called(count));
            });
    late.values().stream()
        .skip(MOST_COUNTS)
        .reduce(Members::and)
        .ifPresent(others -> texts.add(call + others.called("fewer")));
    if (!different.ranks.isEmpty()) {
      texts.add(call + different.called("other collectives"));
    }
    return behind;
  }

  /** Describes what ranks that answer say about themselves. */
  private void states(RasStatus.Communicator communicator, List<String> texts) {
    Map<String, Members> states = new TreeMap<>();
    for (RasStatus.Rank rank : communicator.ranks()) {
      String state = rank.rank() == self ? "" : state(rank);
      if (!state.isEmpty()) {
        states.computeIfAbsent(state, _ -> new Members()).add(rank);
      }
    }
    states.forEach((state, ranks) -> texts.add(ranks.text("reports " + state, "report " + state)));
  }

  private static String state(RasStatus.Rank rank) {
    NcclResult error = NcclResult.ofCode(rank.asyncResult());
    return switch (error) {
      // A remote error is one of another rank.
      case SUCCESS, IN_PROGRESS, REMOTE_ERROR ->
          rank.aborting() ? "an abort" : rank.finalizing() || rank.destroying() ? "a close" : "";
      default -> error.toString();
    };
  }

  /** Ranks, and their processes, of which a message names the first few. */
  private static final class Members {
    private final BitSet ranks = new BitSet();
    private final TreeSet<String> processes = new TreeSet<>();

    void add(RasStatus.Rank rank) {
      add(rank.rank(), rank.host(), rank.pid());
    }

    void add(int rank, String host, int pid) {
      ranks.set(rank);
      if (pid >= 0) {
        processes.add("host " + host + ", process " + pid);
      }
    }

    Members and(Members others) {
      Members all = new Members();
      all.ranks.or(ranks);
      all.ranks.or(others.ranks);
      all.processes.addAll(processes);
      all.processes.addAll(others.processes);
      return all;
    }

    String called(String what) {
      return text("has called " + what, "have called " + what);
    }

    String text(String ofOne, String ofSeveral) {
      String state = ranks.cardinality() == 1 ? ofOne : ofSeveral;
      String more = processes.size() > MOST_PROCESSES ? ", and more)" : ")";
      String where =
          processes.isEmpty()
              ? ""
              : processes.stream()
                  .limit(MOST_PROCESSES)
                  .collect(Collectors.joining("; ", " (", more));
      return RankSets.describe(ranks) + " " + state + where;
    }
  }
}
