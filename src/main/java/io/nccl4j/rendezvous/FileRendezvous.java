package io.nccl4j.rendezvous;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/**
 * A rendezvous through files in a directory that all ranks see: of one host, or on a shared file
 * system.
 *
 * <p><b>Protocol.</b> In each round, every rank announces itself with a random token of this one
 * attempt and its backend, and touches the file now and then while it waits. When all have, rank 0
 * publishes the id in one file, or that a rank which is alive uses another backend, together with
 * all those tokens and a random token of its own. A rank takes an id only from a file that holds
 * the token that it has just drawn, and confirms with rank 0's. Rank 0 returns when all have
 * confirmed its own token, and removes the files.
 *
 * <p><b>What is guaranteed.</b> Files that an earlier run left, crashed or not, never give an id: a
 * rank returns only an id that a rank 0 published after it had read this very attempt's
 * announcement, and rank 0 returns only after every rank has confirmed this very publication. No
 * clock is compared with another, and nothing needs to be cleaned up by hand. A rank that dies and
 * is started again within the deadline is answered anew.
 *
 * <p><b>What is not.</b> Two runs that are <em>alive</em> at once in one directory are kept apart
 * by {@link Member#run} alone. If they have the same one, or none, the ranks that see another
 * process in their place fail with a {@link RendezvousException}, but an id may have reached the
 * other run before. Who may write to the directory can hinder the exchange; files are readable by
 * their owner only (mode 0600), so another user can neither read an id nor forge one for a rank to
 * take. All ranks run as one user.
 *
 * <p>A damaged, foreign or oversized file is logged at once; as its owner may yet come and replace
 * it, it ends the exchange only at the deadline, with a {@link RendezvousException} that names it.
 * On NFS, set a timeout well above the time for which clients cache attributes (60 s by default).
 */
public final class FileRendezvous extends OrderedRendezvous {
  private static final Duration SIGN_OF_LIFE = Duration.ofMillis(200);

  private final Path directory;

  private FileRendezvous(Path directory, Member member) {
    super(member);
    this.directory = directory;
  }

  /**
   * {@return a rank's place in a directory} It holds nothing open between exchanges.
   *
   * @param directory where the files are written; made, for the owner only, if it is absent, and
   *     never removed
   * @param member the rank, and what tells the run from others in the same directory
   * @throws RendezvousException if the directory is absent and cannot be made, or is none
   */
  public static FileRendezvous in(Path directory, Member member) {
    Objects.requireNonNull(directory, "directory");
    Objects.requireNonNull(member, "member");
    Path absolute = directory.toAbsolutePath();
    try {
      if (!Files.isDirectory(absolute)) {
        boolean posix = absolute.getFileSystem().supportedFileAttributeViews().contains("posix");
        if (posix) {
          Files.createDirectories(
              absolute,
              PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        } else {
          Files.createDirectories(absolute);
        }
      }
    } catch (IOException e) {
      throw new RendezvousException(absolute + " is no directory and cannot be made: " + e, e);
    }
    return new FileRendezvous(absolute, member);
  }

  /** {@return the directory in which the ranks meet} */
  public Path directory() {
    return directory;
  }

  @Override
  UniqueId follow(int round, RankBackend backend, Deadline deadline) throws InterruptedException {
    RoundFiles files = new RoundFiles(directory, member(), round);
    Token attempt = Token.random();
    boolean taken = false;
    try {
      Place place = new Place(files, attempt, backend);
      RoundFiles.Publication publication = awaitAnswer(files, place, round, deadline);
      files.write(new RoundFiles.Announcement(attempt, publication.session(), backend));
      taken = true;
      if (publication.mismatch().isPresent()) {
        throw publication.mismatch().get().failure();
      }
      return publication.id();
    } finally {
      if (!taken) {
        // An interrupt would end each access to a file.
        Interrupts.awaitUninterruptibly(() -> files.withdraw(attempt));
      }
    }
  }

  private RoundFiles.Publication awaitAnswer(
      RoundFiles files, Place place, int round, Deadline deadline) throws InterruptedException {
    Backoff backoff = Backoff.betweenLooks(deadline);
    while (true) {
      Optional<RoundFiles.Publication> answer =
          files
              .publication()
              .filter(found -> found.attempts().get(rank() - 1).equals(place.attempt));
      if (answer.isPresent()) {
        return answer.get();
      }
      place.hold();
      checkStillOpen();
      if (deadline.passed()) {
        String what = "rank 0 has not published round " + round + notAnnounced(files) + " in ";
        throw late(files.problems(), what, deadline);
      }
      backoff.pause();
    }
  }

  /** Returns the ranks without an announcement, to be read after what was waited for. */
  private String notAnnounced(RoundFiles files) throws InterruptedException {
    BitSet absent = new BitSet();
    for (int rank = 0; rank < size(); rank++) {
      if (files.announcement(rank).isEmpty()) {
        absent.set(rank);
      }
    }
    return absent.isEmpty() ? "" : " (no announcement of " + Ranks.text(absent) + ")";
  }

  @Override
  void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException {
    RoundFiles files = new RoundFiles(directory, member(), round);
    Publisher publisher = new Publisher(files, id, backend);
    boolean served = false;
    try {
      Backoff backoff = Backoff.betweenLooks(deadline);
      Place place = new Place(files, publisher.session, backend);
      while (!publisher.step()) {
        if (!publisher.published) {
          place.hold();
        }
        checkStillOpen();
        if (deadline.passed()) {
          publisher.checkMismatch();
          throw late(
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

  private RuntimeException late(Map<Path, String> problems, String what, Deadline deadline) {
    if (problems.isEmpty()) {
      return new NcclTimeoutException(
          "FileRendezvous.exchange", deadline.timeout(), what + directory);
    }
    StringBuilder text = new StringBuilder("not finished after ");
    text.append(deadline.timeout().toMillis() / 1000.0).append(" s: ");
    text.append(what).append(directory);
    problems.forEach((file, problem) -> text.append("; ").append(file).append(' ').append(problem));
    return new RendezvousException(text.toString());
  }

  @Override
  void release() {
    // Nothing is held between exchanges, and one under way looks up at its next poll.
  }

  @Override
  public String toString() {
    return "FileRendezvous[rank " + rank() + " of " + size() + " in " + directory + "]";
  }

  /** This rank's announcement, which says that it is there and alive. */
  private final class Place {
    private final RoundFiles files;
    private final Token attempt;
    private final RankBackend backend;
    private boolean announced;
    private Deadline untilSign = Deadline.after(SIGN_OF_LIFE);

    private Place(RoundFiles files, Token attempt, RankBackend backend) {
      this.files = files;
      this.attempt = attempt;
      this.backend = backend;
    }

    /** Keeps it in its place and gives a sign of life; throws if another process has taken it. */
    private void hold() throws InterruptedException {
      Optional<RoundFiles.Announcement> own = files.announcement(rank());
      boolean ours = own.isPresent() && own.get().attempt().equals(attempt);
      if (own.isPresent() && !ours && announced) {
        throw new RendezvousException(
            files.rankFile(rank())
                + " was replaced: another process takes part as rank "
                + rank()
                + ". Two runs in one directory need different run ids");
      }
      announced = true;
      if (!ours) {
        // Not there yet, or swept away with the files of an earlier run, or by somebody else.
        files.write(new RoundFiles.Announcement(attempt, Token.NONE, backend));
      } else if (untilSign.passed()) {
        files.touch();
        untilSign = Deadline.after(SIGN_OF_LIFE);
      }
    }
  }

  /** Rank 0's side of one round. */
  private final class Publisher {
    private final RoundFiles files;
    private final UniqueId id;
    private final Token session = Token.random();
    private final Token[] seen = new Token[size()];
    private final RankBackend[] backends = new RankBackend[size()];
    private final FileTime[] signs = new FileTime[size()];
    private final BitSet absentOnce = new BitSet();
    private final BitSet alive = new BitSet();
    private final BitSet confirmed = new BitSet();
    private boolean published;
    private boolean outdated;

    private Publisher(RoundFiles files, UniqueId id, RankBackend backend) {
      this.files = files;
      this.id = id;
      backends[0] = backend;
    }

    /** Looks at every file once and answers what is new; returns whether all have confirmed. */
    private boolean step() throws InterruptedException {
      for (int rank = 1; rank < size(); rank++) {
        if (!confirmed.get(rank)) {
          outdated |= look(rank);
        }
      }
      if (confirmed.cardinality() == size() - 1) {
        return true;
      }
      boolean all = Arrays.stream(seen).skip(1).allMatch(Objects::nonNull);
      Optional<RankBackend.Mismatch> mismatch = RankBackend.mismatch(backends);
      // An announcement of an earlier run does not say which backend the rank has now.
      boolean sure = mismatch.isEmpty() || alive.get(mismatch.get().rank());
      if (all && sure && (!stillPublished() || outdated)) {
        List<Token> attempts = List.of(Arrays.copyOfRange(seen, 1, size()));
        files.write(new RoundFiles.Publication(session, id, mismatch, attempts));
        published = true;
        outdated = false;
      }
      return false;
    }

    private void checkMismatch() {
      Optional<RankBackend.Mismatch> mismatch = RankBackend.mismatch(backends);
      if (published && mismatch.isPresent()) {
        throw mismatch.get().failure();
      }
    }

    /** Returns whether the rank has announced itself anew. */
    private boolean look(int rank) throws InterruptedException {
      Optional<RoundFiles.Announcement> found = files.announcement(rank);
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

    private boolean stillPublished() throws InterruptedException {
      Optional<RoundFiles.Publication> found = files.publication();
      if (published && found.isPresent() && !found.get().session().equals(session)) {
        throw new RendezvousException(
            files.idFile()
                + " was replaced: another process takes part as rank 0. Two runs in one directory"
                + " need different run ids");
      }
      return published && found.isPresent();
    }

    private String missing() {
      BitSet missing = Ranks.missing(confirmed, size());
      BitSet absent = (BitSet) missing.clone();
      absent.andNot(alive);
      if (absent.isEmpty()) {
        return "missing " + Ranks.text(missing) + " of " + size() + " (announced, not confirmed)";
      }
      BitSet silent = new BitSet();
      absent.stream().filter(rank -> seen[rank] != null).forEach(silent::set);
      String text = "missing " + Ranks.text(absent) + " of " + size();
      return silent.isEmpty()
          ? text
          : text
              + " ("
              + Ranks.text(silent)
              + " left an announcement, perhaps of an earlier run, and gave no sign of life)";
    }
  }
}
