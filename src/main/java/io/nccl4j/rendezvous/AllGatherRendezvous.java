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
import org.jspecify.annotations.NullMarked;

/**
 * A rendezvous over an all-gather of strings that the ranks' framework provides, such as Spark's
 * {@code BarrierTaskContext.allGather}.
 *
 * {@snippet :
 * Rendezvous rendezvous =
 *     AllGatherRendezvous.over(RankInfo.of(rank, size), text -> List.of(context.allGather(text)));
 * }
 *
 * <p>Each exchange is one all-gather, to which every rank contributes a short string of printable
 * ASCII: rank 0 sends the id, or the reason why it could not create one; the others send that they
 * wait for it. Each string contains the sender's rank, round and backend, so all ranks detect at
 * once a rank that is in another round, out of order, or on another backend. If rank 0 cannot
 * create an id, the other ranks fail at once.
 *
 * <p>The framework determines the timeout and the confidentiality of an exchange: {@link
 * RankInfo#timeout} is ignored, and {@link #close} does not end an all-gather in progress. On rank
 * 0 an exchange returns when all ranks have arrived. Exceptions that the all-gather throws are
 * propagated unchanged, so that the framework recognizes its own.
 */
@NullMarked
public final class AllGatherRendezvous extends AbstractRendezvous {
  private static final Pattern TEXT =
      Pattern.compile(
          "nccl4j rank (\\d+) of (\\d+) round (\\d+) (id|failed|waits) ([0-9]) ?(.*)",
          Pattern.DOTALL);

  private final Function<String, List<String>> gather;

  private AllGatherRendezvous(RankInfo rankInfo, Function<String, List<String>> gather) {
    super(rankInfo);
    this.gather = gather;
  }

  /**
   * {@return the rendezvous of one rank over its framework's all-gather} It holds no resources.
   *
   * @param rankInfo the rank; its job id and timeout are ignored
   * @param gather takes this rank's string and returns those of all ranks, in rank order, once all
   *     ranks have arrived. Called once per exchange, in the calling thread; not called if there is
   *     only one rank
   */
  public static AllGatherRendezvous over(RankInfo rankInfo, Function<String, List<String>> gather) {
    return new AllGatherRendezvous(
        Objects.requireNonNull(rankInfo, "rankInfo"), Objects.requireNonNull(gather, "gather"));
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
    if (first.group(4).equals("failed")) {
      throw new RendezvousException("rank 0 failed in round " + round + ": " + first.group(6));
    }
    try {
      return UniqueId.fromHex(first.group(6));
    } catch (IllegalArgumentException e) {
      throw new RendezvousException("rank 0 sent an invalid unique id in round " + round, e);
    }
  }

  /** Gathers all texts, checks that they are of this round, and returns rank 0's. */
  private Matcher gather(int round, String kind, String more) throws ExchangeFailedException {
    checkStillOpen();
    String own =
        "nccl4j rank %d of %d round %d %s %s".formatted(rank(), size(), round, kind, more).strip();
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
    String expected = "rank " + rank + " of " + size() + " in round " + round;
    Matcher matcher = TEXT.matcher(Objects.requireNonNullElse(text, ""));
    if (!matcher.matches()) {
      // The text is not shown: it may be another program's secret.
      throw new RendezvousException(
          "gather returned at index "
              + rank
              + " a text that is not a rendezvous message; expected that of "
              + expected);
    }
    String found =
        "rank " + matcher.group(1) + " of " + matcher.group(2) + " in round " + matcher.group(3);
    if (!found.equals(expected)) {
      throw new RendezvousException(
          "gather returned at index "
              + rank
              + " the text of "
              + found
              + "; expected that of "
              + expected
              + ". gather must return the texts in rank order, and all ranks must call it equally"
              + " often");
    }
    if (rank > 0 != matcher.group(4).equals("waits")) {
      throw new RendezvousException(
          found + " sent '" + matcher.group(4) + "'; only rank 0 sends the id");
    }
    return matcher;
  }

  private static String printable(String text) {
    return text.replaceAll("[^ -~]+", " ");
  }

  @Override
  void release() {
    // The framework owns the all-gather.
  }

  @Override
  public String toString() {
    return "AllGatherRendezvous[rank " + rank() + " of " + size() + "]";
  }
}
