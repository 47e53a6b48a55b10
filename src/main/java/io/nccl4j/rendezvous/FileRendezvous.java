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
import org.jspecify.annotations.NullMarked;

/**
 * A rendezvous through files in a directory that all ranks can access, on one host or on a shared
 * file system.
 *
 * <p><b>Protocol.</b> In each round, every rank writes an announcement file with its backend and a
 * random token of this attempt, and touches the file periodically while it waits. When all ranks
 * have announced themselves, rank 0 publishes one file with the id, all those tokens and a random
 * token of its own; if a live rank uses another backend, the file says so. A rank accepts an id
 * only from a file that contains its current token, and confirms with rank 0's token. Rank 0
 * returns when all ranks have confirmed its token, and removes the files.
 *
 * <p><b>Guarantees.</b> Files left by an earlier run, crashed or not, never provide an id: a rank
 * returns only an id that was published after rank 0 had read the announcement of the current
 * attempt, and rank 0 returns only after every rank has confirmed the current publication. Clocks
 * are not compared, and nothing needs to be cleaned up by hand. A rank that dies and is restarted
 * before the deadline gets a new answer.
 *
 * <p><b>Limits.</b> Two runs that are <em>alive</em> at once in one directory are separated by
 * {@link RankInfo#jobId} alone. If they have the same job id, or none, ranks that detect another
 * process with their rank fail with a {@link RendezvousException}, but an id may already have
 * reached the other run. Any user who can write to the directory can prevent the exchange. Files
 * are readable by their owner only (mode 0600), so another user can neither read an id nor forge
 * one that a rank would accept. All ranks must run as the same user.
 *
 * <p>A damaged, foreign or oversized file is logged at once. Since its owner may still replace it,
 * it ends the exchange only at the deadline, with a {@link RendezvousException} that names it. On
 * NFS, set a timeout well above the clients' attribute cache time (60 s by default).
 */
@NullMarked
public final class FileRendezvous extends AbstractRendezvous {
  private final Path directory;
  private final FileExchange exchange;

  private FileRendezvous(Path directory, RankInfo rankInfo) {
    super(rankInfo);
    this.directory = directory;
    this.exchange = new FileExchange(directory, rankInfo.jobRank(), this::checkStillOpen);
  }

  /**
   * {@return the rendezvous of one rank in a directory} It holds no resources between exchanges.
   *
   * @param directory the directory for the files; created with owner-only permissions if absent,
   *     never removed
   * @param rankInfo the rank; its job id separates this run from others in the same directory
   * @throws RendezvousException if the path is not a directory and none can be created there
   */
  public static FileRendezvous in(Path directory, RankInfo rankInfo) {
    Objects.requireNonNull(directory, "directory");
    Objects.requireNonNull(rankInfo, "rankInfo");
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
      throw new RendezvousException(
          absolute + " is not a directory and cannot be created: " + e, e);
    }
    return new FileRendezvous(absolute, rankInfo);
  }

  /** {@return the directory of the files, as an absolute path} */
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
    // Nothing is held between exchanges; one in progress notices the close at its next poll.
  }

  @Override
  public String toString() {
    return "FileRendezvous[rank " + rank() + " of " + size() + " in " + directory + "]";
  }
}
