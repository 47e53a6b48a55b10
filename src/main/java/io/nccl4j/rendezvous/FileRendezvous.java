package io.nccl4j.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.file.FileExchange;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Objects;

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
 * by {@link RankInfo#jobId} alone. If they have the same one, or none, the ranks that see another
 * process in their place fail with a {@link RendezvousException}, but an id may have reached the
 * other run before. Who may write to the directory can hinder the exchange; files are readable by
 * their owner only (mode 0600), so another user can neither read an id nor forge one for a rank to
 * take. All ranks run as one user.
 *
 * <p>A damaged, foreign or oversized file is logged at once; as its owner may yet come and replace
 * it, it ends the exchange only at the deadline, with a {@link RendezvousException} that names it.
 * On NFS, set a timeout well above the time for which clients cache attributes (60 s by default).
 */
public final class FileRendezvous extends AbstractRendezvous {
  private final Path directory;
  private final FileExchange exchange;

  private FileRendezvous(Path directory, RankInfo member) {
    super(member);
    this.directory = directory;
    this.exchange = new FileExchange(directory, member.jobRank(), this::checkStillOpen);
  }

  /**
   * {@return a rank's place in a directory} It holds nothing open between exchanges.
   *
   * @param directory where the files are written; made, for the owner only, if it is absent, and
   *     never removed
   * @param member the rank, and what tells the run from others in the same directory
   * @throws RendezvousException if the directory is absent and cannot be made, or is none
   */
  public static FileRendezvous in(Path directory, RankInfo member) {
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
  void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    exchange.publish(round, id, backend, deadline);
  }

  @Override
  UniqueId follow(int round, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    return exchange.follow(round, backend, deadline);
  }

  @Override
  void release() {
    // Nothing is held between exchanges, and one under way looks up at its next poll.
  }

  @Override
  public String toString() {
    return "FileRendezvous[rank " + rank() + " of " + size() + " in " + directory + "]";
  }
}
