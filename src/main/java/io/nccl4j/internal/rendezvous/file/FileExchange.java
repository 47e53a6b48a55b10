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
 * One rank's side of the file protocol described in {@code FileRendezvous}. Holds no resources
 * between rounds.
 */
public final class FileExchange {
  private static final Duration HEARTBEAT_INTERVAL = Duration.ofMillis(200);

  private final Path directory;
  private final JobRank self;
  private final Runnable checkStillOpen;

  /**
   * Creates the side of one rank.
   *
   * @param checkStillOpen throws if the rendezvous has been closed meanwhile
   */
  public FileExchange(Path directory, JobRank self, Runnable checkStillOpen) {
    this.directory = directory;
    this.self = self;
    this.checkStillOpen = checkStillOpen;
  }

  /** Returns the id of a round; called on all ranks except 0. */
  public UniqueId follow(int round, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    RoundDirectory files = new RoundDirectory(directory, self, round);
    Token attempt = Token.random();
    boolean confirmed = false;
    try {
      ExchangeFolder folder = new ExchangeFolder(files, attempt, backend);
      RoundDirectory.Publication publication = awaitAnswer(files, folder, round, deadline);
      files.write(new RoundDirectory.Announcement(attempt, publication.session(), backend));
      confirmed = true;
      RankBackend.Mismatch.check(publication.mismatch());
      return publication.id();
    } finally {
      if (!confirmed) {
        // An interrupt would abort each file access.
        Interrupts.awaitUninterruptibly(() -> files.withdraw(attempt));
      }
    }
  }

  private RoundDirectory.Publication awaitAnswer(
      RoundDirectory files, ExchangeFolder folder, int round, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    Backoff backoff = Backoff.betweenLooks(deadline);
    while (true) {
      Optional<RoundDirectory.Publication> answer =
          files
              .publication()
              .filter(found -> found.attempts().get(self.rank() - 1).equals(folder.attempt));
      if (answer.isPresent()) {
        return answer.get();
      }
      folder.keepAnnounced();
      checkStillOpen.run();
      if (deadline.passed()) {
        String awaited = "rank 0 has not published round " + round + notAnnounced(files) + " in ";
        throw timedOut(files.problems(), awaited, deadline);
      }
      backoff.pause();
    }
  }

  /** Returns a message suffix with the ranks that have no announcement; may be empty. */
  private String notAnnounced(RoundDirectory files) throws InterruptedException {
    BitSet absent = new BitSet();
    for (int rank = 0; rank < self.size(); rank++) {
      if (files.announcement(rank).isEmpty()) {
        absent.set(rank);
      }
    }
    return absent.isEmpty() ? "" : " (no announcement of " + Ranks.text(absent) + ")";
  }

  /** Publishes the id of a round and returns when all ranks have confirmed it; called on rank 0. */
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
          folder.keepAnnounced();
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
      Map<Path, String> problems, String awaited, Deadline deadline) {
    if (problems.isEmpty()) {
      throw new NcclTimeoutException(
          "FileRendezvous.exchange", deadline.timeout(), awaited + directory);
    }
    StringBuilder text = new StringBuilder("not finished after ");
    text.append(deadline.timeout().toMillis() / 1000.0).append(" s: ");
    text.append(awaited).append(directory);
    problems.forEach((file, problem) -> text.append("; ").append(file).append(' ').append(problem));
    return new ExchangeFailedException(text.toString());
  }

  /** Maintains this rank's announcement, which shows that the rank is alive. */
  private final class ExchangeFolder {
    private final RoundDirectory files;
    private final Token attempt;
    private final RankBackend backend;
    private boolean announced;
    private Deadline nextHeartbeat = Deadline.after(HEARTBEAT_INTERVAL);

    private ExchangeFolder(RoundDirectory files, Token attempt, RankBackend backend) {
      this.files = files;
      this.attempt = attempt;
      this.backend = backend;
    }

    /** Writes or touches the announcement as needed; throws if another process replaced it. */
    private void keepAnnounced() throws InterruptedException, ExchangeFailedException {
      Optional<RoundDirectory.Announcement> own = files.announcement(self.rank());
      boolean ours = own.isPresent() && own.get().attempt().equals(attempt);
      if (own.isPresent() && !ours && announced) {
        throw new ExchangeFailedException(
            files.rankFile(self.rank())
                + " was replaced: another process takes part as rank "
                + self.rank()
                + ". Two runs in one directory need different job ids");
      }
      announced = true;
      if (!ours) {
        // Not written yet, or removed with the files of an earlier run, or by another user.
        files.write(new RoundDirectory.Announcement(attempt, Token.NONE, backend));
      } else if (nextHeartbeat.passed()) {
        files.touch();
        nextHeartbeat = Deadline.after(HEARTBEAT_INTERVAL);
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
    private final FileTime[] timestamps = new FileTime[self.size()];
    private final BitSet initiallyAbsent = new BitSet();
    private final BitSet alive = new BitSet();
    private final BitSet confirmed = new BitSet();
    private boolean published;
    private boolean outdated;

    private Publisher(RoundDirectory files, UniqueId id, RankBackend backend) {
      this.files = files;
      this.id = id;
      backends[0] = backend;
    }

    /** Polls every file once and answers new announcements; returns whether all have confirmed. */
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
      // A stale announcement of an earlier run may contain another backend.
      boolean current = mismatch.isEmpty() || alive.get(mismatch.get().rank());
      if (all && current && (!stillPublished() || outdated)) {
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

    /** Polls the file of a rank; returns whether the rank has written a new announcement. */
    private boolean poll(int rank) throws InterruptedException {
      Optional<RoundDirectory.Announcement> found = files.announcement(rank);
      if (found.isEmpty()) {
        initiallyAbsent.set(rank);
        return false;
      }
      updateAlive(rank);
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

    /** Marks the rank as alive if its file appeared or was touched since this round began. */
    private void updateAlive(int rank) {
      FileTime timestamp = files.lastModified(rank).orElse(timestamps[rank]);
      FileTime previous = timestamps[rank];
      if (initiallyAbsent.get(rank) || (previous != null && !previous.equals(timestamp))) {
        alive.set(rank);
      }
      timestamps[rank] = timestamp;
    }

    private boolean stillPublished() throws InterruptedException, ExchangeFailedException {
      Optional<RoundDirectory.Publication> found = files.publication();
      if (published && found.isPresent() && !found.get().session().equals(session)) {
        throw new ExchangeFailedException(
            files.idFile()
                + " was replaced: another process takes part as rank 0. Two runs in one directory"
                + " need different job ids");
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
              + " left an announcement, possibly of an earlier run, but did not update it)";
    }
  }
}
