package io.nccl4j.internal.rendezvous.file;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.JobRank;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Ranks;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/**
 * One rank's side of the exchange through files that {@code FileRendezvous} describes. It holds
 * nothing open between rounds.
 */
public final class FileExchange {
  private static final Duration SIGN_OF_LIFE = Duration.ofMillis(200);

  private final Path directory;
  private final JobRank self;
  private final Runnable checkStillOpen;

  /**
   * Makes the side of one rank.
   *
   * @param checkStillOpen throws if the exchange has been closed meanwhile
   */
  public FileExchange(Path directory, JobRank self, Runnable checkStillOpen) {
    this.directory = directory;
    this.self = self;
    this.checkStillOpen = checkStillOpen;
  }

  /** Returns the id of a round; on the ranks but 0. */
  public UniqueId follow(int round, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    RoundDirectory files = new RoundDirectory(directory, self, round);
    Token attempt = Token.random();
    boolean taken = false;
    try {
      ExchangeFolder folder = new ExchangeFolder(files, attempt, backend);
      RoundDirectory.Publication publication = awaitAnswer(files, folder, round, deadline);
      files.write(new RoundDirectory.Announcement(attempt, publication.session(), backend));
      taken = true;
      RankBackend.Mismatch.check(publication.mismatch());
      return publication.id();
    } finally {
      if (!taken) {
        // An interrupt would end each access to a file.
        Interrupts.awaitUninterruptibly(() -> files.withdraw(attempt));
      }
    }
  }

  private RoundDirectory.Publication awaitAnswer(
      RoundDirectory files, ExchangeFolder place, int round, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    Backoff backoff = Backoff.betweenLooks(deadline);
    while (true) {
      Optional<RoundDirectory.Publication> answer =
          files
              .publication()
              .filter(found -> found.attempts().get(self.rank() - 1).equals(place.attempt));
      if (answer.isPresent()) {
        return answer.get();
      }
      place.lock();
      checkStillOpen.run();
      if (deadline.passed()) {
        String what = "rank 0 has not published round " + round + notAnnounced(files) + " in ";
        throw timedOut(files.problems(), what, deadline);
      }
      backoff.pause();
    }
  }

  /** Returns the ranks without an announcement, to be read after what was waited for. */
  private String notAnnounced(RoundDirectory files) throws InterruptedException {
    BitSet absent = new BitSet();
    for (int rank = 0; rank < self.size(); rank++) {
      if (files.announcement(rank).isEmpty()) {
        absent.set(rank);
      }
    }
    return absent.isEmpty() ? "" : " (no announcement of " + Ranks.text(absent) + ")";
  }

  /** Publishes the id of a round and returns when all ranks have confirmed it; on rank 0. */
  public void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    RoundDirectory files = new RoundDirectory(directory, self, round);
    Publisher publisher = new Publisher(files, id, backend);
    boolean served = false;
    try {
      Backoff backoff = Backoff.betweenLooks(deadline);
      ExchangeFolder folder = new ExchangeFolder(files, publisher.session, backend);
      while (!publisher.step()) {
        if (!publisher.published) {
          folder.lock();
        }
        checkStillOpen.run();
        if (deadline.passed()) {
          publisher.checkMismatch();
          throw timedOut(
              files.problems(), publisher.missing() + " in round " + round + " in ", deadline);
        }
        backoff.pause();
      }
      served = true;
      publisher.checkMismatch();
    } finally {
      if (served) {
        files.sweep();
      } else {
        Interrupts.awaitUninterruptibly(
            () -> {
              files.withdrawPublication(publisher.session);
              files.withdraw(publisher.session);
            });
      }
    }
  }

  private ExchangeFailedException timedOut(
      Map<Path, String> problems, String what, Deadline deadline) {
    if (problems.isEmpty()) {
      throw new NcclTimeoutException(
          "FileRendezvous.exchange", deadline.timeout(), what + directory);
    }
    StringBuilder text = new StringBuilder("not finished after ");
    text.append(deadline.timeout().toMillis() / 1000.0).append(" s: ");
    text.append(what).append(directory);
    problems.forEach((file, problem) -> text.append("; ").append(file).append(' ').append(problem));
    return new ExchangeFailedException(text.toString());
  }

  /** This rank's announcement, which says that it is there and alive. */
  private final class ExchangeFolder {
    private final RoundDirectory files;
    private final Token attempt;
    private final RankBackend backend;
    private boolean announced;
    private Deadline untilSign = Deadline.after(SIGN_OF_LIFE);

    private ExchangeFolder(RoundDirectory files, Token attempt, RankBackend backend) {
      this.files = files;
      this.attempt = attempt;
      this.backend = backend;
    }

    /** Keeps it in its place and gives a sign of life; throws if another process has taken it. */
    private void lock() throws InterruptedException, ExchangeFailedException {
      Optional<RoundDirectory.Announcement> own = files.announcement(self.rank());
      boolean ours = own.isPresent() && own.get().attempt().equals(attempt);
      if (own.isPresent() && !ours && announced) {
        throw new ExchangeFailedException(
            files.rankFile(self.rank())
                + " was replaced: another process takes part as rank "
                + self.rank()
                + ". Two runs in one directory need different run ids");
      }
      announced = true;
      if (!ours) {
        // Not there yet, or swept away with the files of an earlier run, or by somebody else.
        files.write(new RoundDirectory.Announcement(attempt, Token.NONE, backend));
      } else if (untilSign.passed()) {
        files.touch();
        untilSign = Deadline.after(SIGN_OF_LIFE);
      }
    }
  }

  /** Rank 0's side of one round. */
  private final class Publisher {
    private final RoundDirectory files;
    private final UniqueId id;
    private final Token session = Token.random();
    private final Token[] seen = new Token[self.size()];
    private final RankBackend[] backends = new RankBackend[self.size()];
    private final FileTime[] signs = new FileTime[self.size()];
    private final BitSet absentOnce = new BitSet();
    private final BitSet alive = new BitSet();
    private final BitSet confirmed = new BitSet();
    private boolean published;
    private boolean outdated;

    private Publisher(RoundDirectory files, UniqueId id, RankBackend backend) {
      this.files = files;
      this.id = id;
      backends[0] = backend;
    }

    /** Looks at every file once and answers what is new; returns whether all have confirmed. */
    private boolean step() throws InterruptedException, ExchangeFailedException {
      for (int rank = 1; rank < self.size(); rank++) {
        if (!confirmed.get(rank)) {
          outdated |= poll(rank);
        }
      }
      if (confirmed.cardinality() == self.size() - 1) {
        return true;
      }
      boolean all = Arrays.stream(seen).skip(1).allMatch(Objects::nonNull);
      Optional<RankBackend.Mismatch> mismatch = RankBackend.mismatch(backends);
      // An announcement of an earlier run does not say which backend the rank has now.
      boolean sure = mismatch.isEmpty() || alive.get(mismatch.get().rank());
      if (all && sure && (!stillPublished() || outdated)) {
        List<Token> attempts = List.of(Arrays.copyOfRange(seen, 1, self.size()));
        files.write(new RoundDirectory.Publication(session, id, mismatch, attempts));
        published = true;
        outdated = false;
      }
      return false;
    }

    private void checkMismatch() throws ExchangeFailedException {
      if (published) {
        RankBackend.Mismatch.check(RankBackend.mismatch(backends));
      }
    }

    /** Returns whether the rank has announced itself anew. */
    private boolean poll(int rank) throws InterruptedException {
      Optional<RoundDirectory.Announcement> found = files.announcement(rank);
      if (found.isEmpty()) {
        absentOnce.set(rank);
        return false;
      }
      watch(rank);
      Token attempt = found.get().attempt();
      if (found.get().session().equals(session)) {
        confirmed.set(rank);
        return false;
      }
      boolean changed = !attempt.equals(seen[rank]);
      seen[rank] = attempt;
      backends[rank] = found.get().backend();
      return changed;
    }

    /** Notes whether the rank came, or gave a sign of life, while we were looking. */
    private void watch(int rank) {
      FileTime sign = files.lastSign(rank).orElse(signs[rank]);
      if (absentOnce.get(rank) || (signs[rank] != null && !signs[rank].equals(sign))) {
        alive.set(rank);
      }
      signs[rank] = sign;
    }

    private boolean stillPublished() throws InterruptedException, ExchangeFailedException {
      Optional<RoundDirectory.Publication> found = files.publication();
      if (published && found.isPresent() && !found.get().session().equals(session)) {
        throw new ExchangeFailedException(
            files.idFile()
                + " was replaced: another process takes part as rank 0. Two runs in one directory"
                + " need different run ids");
      }
      return published && found.isPresent();
    }

    private String missing() {
      BitSet missing = Ranks.missing(confirmed, self.size());
      BitSet absent = (BitSet) missing.clone();
      absent.andNot(alive);
      if (absent.isEmpty()) {
        return "missing "
            + Ranks.text(missing)
            + " of "
            + self.size()
            + " (announced, not confirmed)";
      }
      BitSet silent = new BitSet();
      absent.stream().filter(rank -> seen[rank] != null).forEach(silent::set);
      String text = "missing " + Ranks.text(absent) + " of " + self.size();
      return silent.isEmpty()
          ? text
          : text
              + " ("
              + Ranks.text(silent)
              + " left an announcement, perhaps of an earlier run, and gave no sign of life)";
    }
  }
}
