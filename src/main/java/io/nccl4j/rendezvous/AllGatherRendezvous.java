package io.nccl4j.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A rendezvous over what the ranks' own framework already has: an all-gather of texts, such as
 * Spark's {@code BarrierTaskContext.allGather}.
 *
 * {@snippet :
 * Rendezvous rendezvous =
 *     AllGatherRendezvous.over(RankInfo.of(rank, size), text -> List.of(context.allGather(text)));
 * }
 *
 * <p>Each exchange is one gathering, to which every rank brings a short text of printable ASCII:
 * rank 0 the id, or why it has none, the others that they wait for it. Each text names its rank,
 * its round and its backend, so all ranks see at once that one is out of step, in another place, or
 * on another backend. If rank 0 cannot make an id, the others fail at once.
 *
 * <p>How long an exchange takes, and who may read it, is the framework's to say: {@link
 * RankInfo#timeout} is not looked at, and {@link #close} does not end a gathering under way. On
 * rank 0 an exchange returns when all ranks have come. What the gathering throws comes out
 * unchanged, so that a framework knows its own exceptions again.
 */
public final class AllGatherRendezvous extends AbstractRendezvous {
  private static final Pattern TEXT =
      Pattern.compile(
          "nccl4j rank (\\d+) of (\\d+) round (\\d+) (id|failed|waits) ([0-9]) ?(.*)",
          Pattern.DOTALL);

  private final Function<String, List<String>> gather;

  private AllGatherRendezvous(RankInfo member, Function<String, List<String>> gather) {
    super(member);
    this.gather = gather;
  }

  /**
   * {@return a rank's place in the gatherings of its framework} It holds nothing open.
   *
   * @param member the rank; of its run and timeout no use is made
   * @param gather is given this rank's text and returns those of all ranks, rank 0's first, when
   *     all have come. It is called once in each exchange, in the calling thread, and never for a
   *     single rank
   */
  public static AllGatherRendezvous over(RankInfo member, Function<String, List<String>> gather) {
    return new AllGatherRendezvous(
        Objects.requireNonNull(member, "member"), Objects.requireNonNull(gather, "gather"));
  }

  @Override
  UniqueId make(int round, Supplier<UniqueId> maker) {
    try {
      return super.make(round, maker);
    } catch (RuntimeException | Error e) {
      if (size() > 1) {
        reportBackend(round, e);
      }
      throw e;
    }
  }

  private void reportBackend(int round, Throwable failure) {
    try {
      gather(round, "failed", RankBackend.UNKNOWN.code() + " " + printable(failure.toString()));
    } catch (ExchangeFailedException | RuntimeException | Error e) {
      CloseAll.suppress(failure, e);
    }
  }

  @Override
  void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws ExchangeFailedException {
    gather(round, "id", backend.code() + " " + id.toHex());
  }

  @Override
  UniqueId follow(int round, RankBackend backend, Deadline deadline)
      throws ExchangeFailedException {
    Matcher first = gather(round, "waits", backend.code() + "");
    String what = first.group(4);
    if (what.equals("failed")) {
      throw new RendezvousException("rank 0 failed in round " + round + ": " + first.group(6));
    }
    try {
      return UniqueId.fromHex(first.group(6));
    } catch (IllegalArgumentException e) {
      throw new RendezvousException("rank 0 sent no unique id in round " + round, e);
    }
  }

  /** Brings this rank's text, checks that all are of this round, and returns rank 0's. */
  private Matcher gather(int round, String what, String more) throws ExchangeFailedException {
    checkStillOpen();
    String own =
        "nccl4j rank %d of %d round %d %s %s".formatted(rank(), size(), round, what, more).strip();
    List<String> texts = Objects.requireNonNull(gather.apply(own), "gather returned null");
    if (texts.size() != size()) {
      throw new RendezvousException(
          "gather returned " + texts.size() + " texts; there are " + size() + " ranks");
    }
    RankBackend[] backends = new RankBackend[size()];
    Matcher first = textOf(0, round, texts.getFirst());
    backends[0] = backendIn(first);
    for (int rank = 1; rank < size(); rank++) {
      backends[rank] = backendIn(textOf(rank, round, texts.get(rank)));
    }
    RankBackend.Mismatch.check(RankBackend.mismatch(backends));
    return first;
  }

  private static RankBackend backendIn(Matcher text) {
    return RankBackend.ofCode(Integer.parseInt(text.group(5)));
  }

  private Matcher textOf(int rank, int round, String text) {
    String wanted = "rank " + rank + " of " + size() + " in round " + round;
    Matcher matcher = TEXT.matcher(Objects.requireNonNullElse(text, ""));
    if (!matcher.matches()) {
      // Not shown: it may be another program's secret.
      throw new RendezvousException(
          "gather returned at index " + rank + " no text of a rendezvous; wanted " + wanted);
    }
    String found =
        "rank " + matcher.group(1) + " of " + matcher.group(2) + " in round " + matcher.group(3);
    if (!found.equals(wanted)) {
      throw new RendezvousException(
          "gather returned at index "
              + rank
              + " the text of "
              + found
              + "; wanted "
              + wanted
              + ": all ranks gather as often, and in the order of their ranks");
    }
    if (rank > 0 != matcher.group(4).equals("waits")) {
      throw new RendezvousException(
          found + " sent '" + matcher.group(4) + "'; rank 0 alone has the id");
    }
    return matcher;
  }

  private static String printable(String text) {
    return text.replaceAll("[^ -~]+", " ");
  }

  @Override
  void release() {
    // The gathering is the framework's.
  }

  @Override
  public String toString() {
    return "AllGatherRendezvous[rank " + rank() + " of " + size() + "]";
  }
}
