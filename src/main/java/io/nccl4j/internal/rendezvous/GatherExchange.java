package io.nccl4j.internal.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The exchange of ids through an all-gather of strings. Each exchange is one all-gather, to which
 * every rank contributes printable ASCII: rank 0 the id, the others that they wait for it, and a
 * rank that has failed before the reason.
 */
public final class GatherExchange implements IdExchange {
  private static final Pattern TEXT =
      Pattern.compile(
          "nccl4j rank (\\d+) of (\\d+) round (\\d+) (id|failed|waits) ([0-9]) ?(.*)",
          Pattern.DOTALL);

  private final JobRank self;
  private final Function<String, List<String>> gather;
  private final Runnable checkStillOpen;

  /**
   * Creates the side of one rank.
   *
   * @param gather takes this rank's string and returns those of all ranks, in rank order
   * @param checkStillOpen throws if the rendezvous has been closed meanwhile
   */
  public GatherExchange(
      JobRank self, Function<String, List<String>> gather, Runnable checkStillOpen) {
    this.self = self;
    this.gather = gather;
    this.checkStillOpen = checkStillOpen;
  }

  @Override
  public UniqueId exchange(
      int round, RankBackend backend, Supplier<UniqueId> part, Deadline deadline)
      throws ExchangeFailedException {
    UniqueId id;
    try {
      id = part.get();
    } catch (RuntimeException | Error e) {
      tell(round, e);
      throw e;
    }
    if (self.rank() == 0) {
      gather(round, "id", backend.code() + " " + id.toHex());
      return id;
    }
    String hex = gather(round, "waits", backend.code() + "");
    try {
      return UniqueId.fromHex(hex);
    } catch (IllegalArgumentException e) {
      throw new ExchangeFailedException("rank 0 sent an invalid unique id in round " + round, e);
    }
  }

  private void tell(int round, Throwable failure) {
    String reason = failure.toString().replaceAll("[^ -~]+", " ");
    try {
      gather(round, "failed", RankBackend.UNKNOWN.code() + " " + reason);
    } catch (ExchangeFailedException | RuntimeException | Error e) {
      CloseAll.suppress(failure, e);
    }
  }

  /** Gathers all texts, checks that they are of this round, and returns what rank 0 sent. */
  private String gather(int round, String kind, String more) throws ExchangeFailedException {
    checkStillOpen.run();
    String own =
        "nccl4j rank %d of %d round %d %s %s"
            .formatted(self.rank(), self.size(), round, kind, more)
            .strip();
    List<String> texts = Objects.requireNonNull(gather.apply(own), "gather returned null");
    if (texts.size() != self.size()) {
      throw new ExchangeFailedException(
          "gather returned " + texts.size() + " texts; there are " + self.size() + " ranks");
    }
    Matcher first = textOf(0, round, texts.getFirst());
    for (int rank = 0; rank < self.size(); rank++) {
      Matcher text = textOf(rank, round, texts.get(rank));
      if (text.group(4).equals("failed") && rank != self.rank()) {
        throw new ExchangeFailedException(
            "rank " + rank + " failed in round " + round + ": " + text.group(6));
      }
      Optional<String> mismatch = RankBackend.mismatch(rank, backendIn(text), backendIn(first));
      if (mismatch.isPresent()) {
        throw new ExchangeFailedException(mismatch.get());
      }
    }
    return first.group(6);
  }

  private static RankBackend backendIn(Matcher text) {
    return RankBackend.ofCode(Integer.parseInt(text.group(5)));
  }

  private Matcher textOf(int rank, int round, String text) throws ExchangeFailedException {
    String expected = "rank " + rank + " of " + self.size() + " in round " + round;
    Matcher matcher = TEXT.matcher(Objects.requireNonNullElse(text, ""));
    if (!matcher.matches()) {
      // The text is not shown: it may be another program's secret.
      throw new ExchangeFailedException(
          "gather returned at index "
              + rank
              + " a text that is not a rendezvous message; expected that of "
              + expected);
    }
    String found =
        "rank " + matcher.group(1) + " of " + matcher.group(2) + " in round " + matcher.group(3);
    if (!found.equals(expected)) {
      throw new ExchangeFailedException(
          "gather returned at index "
              + rank
              + " the text of "
              + found
              + "; expected that of "
              + expected
              + ". gather must return the texts in rank order, and all ranks must call it equally"
              + " often");
    }
    if (matcher.group(4).equals(rank > 0 ? "id" : "waits")) {
      throw new ExchangeFailedException(
          found + " sent '" + matcher.group(4) + "'; only rank 0 sends the id");
    }
    return matcher;
  }

  @Override
  public void close() {
    // The framework owns the all-gather.
  }
}
