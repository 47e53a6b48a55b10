package io.nccl4j.internal.rendezvous.file;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.JobRank;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import org.apache.logging.log4j.Logger;

/**
 * The files of one round: rank 0's publication, and one file per rank. Defines their names and
 * format.
 *
 * <p>A file is written under a temporary name, synced, and renamed, so that a reader sees all of it
 * or nothing. It ends with a digest of the rest. A file that cannot be read, or does not fit this
 * round, counts as absent and is recorded in {@link #problems()}: its owner, if alive, will replace
 * it.
 */
public final class RoundDirectory {
  private static final Logger LOG = Loggers.of(RoundDirectory.class);

  private static final long MAGIC = 0x4e43434c344a5246L; // NCCL4JRF
  private static final int VERSION = 2;
  private static final int DIGEST_BYTES = 32;
  private static final int HEADER_BYTES = Long.BYTES + 5 * Integer.BYTES;
  private static final int WRITE_ATTEMPTS = 5;
  private static final FileAttribute<Set<PosixFilePermission>> OWNER_ONLY =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

  private final Path directory;
  private final JobRank jobRank;
  private final int round;
  private final String prefix;
  private final Map<Path, String> problems = new HashMap<>();

  public RoundDirectory(Path directory, JobRank jobRank, int round) {
    this.directory = directory;
    this.jobRank = jobRank;
    this.round = round;
    String job = jobRank.jobId().isEmpty() ? "norun" : Token.ofText(jobRank.jobId()).toHex();
    this.prefix = "nccl4j-" + job + "-round" + round + ".";
  }

  /**
   * The file of a rank.
   *
   * @param attempt identifies this attempt of the rank; for rank 0, its session
   * @param session rank 0's session whose id the rank has confirmed, or {@link Token#NONE}
   * @param backend the backend that the rank will use the id with
   */
  public record Announcement(Token attempt, Token session, RankBackend backend) {}

  /**
   * Rank 0's publication.
   *
   * @param session identifies this publication
   * @param id the id
   * @param mismatch set if ranks have different backends, and no rank may use the id
   * @param attempts the attempts it answers, one per rank from rank 1
   */
  public record Publication(
      Token session, UniqueId id, Optional<RankBackend.Mismatch> mismatch, List<Token> attempts) {}

  public Path idFile() {
    return directory.resolve(prefix + "id");
  }

  public Path rankFile(int rank) {
    return directory.resolve(prefix + "rank" + rank);
  }

  /** Returns the problems found when files were last read, by file. */
  public Map<Path, String> problems() {
    return problems;
  }

  public void write(Announcement announcement)
      throws InterruptedException, ExchangeFailedException {
    ByteBuffer bytes = start(jobRank.rank(), announcementBytes());
    announcement.attempt().write(bytes);
    announcement.session().write(bytes);
    bytes.putInt(announcement.backend().code());
    replace(rankFile(jobRank.rank()), bytes);
  }

  public void write(Publication publication) throws InterruptedException, ExchangeFailedException {
    ByteBuffer bytes = start(0, publicationBytes());
    publication.session().write(bytes);
    bytes.put(publication.id().toBytes());
    RankBackend.Mismatch.write(publication.mismatch(), bytes);
    publication.attempts().forEach(attempt -> attempt.write(bytes));
    replace(idFile(), bytes);
  }

  public Optional<Announcement> announcement(int rank) throws InterruptedException {
    return read(rankFile(rank), rank, announcementBytes())
        .map(
            bytes ->
                new Announcement(
                    Token.read(bytes), Token.read(bytes), RankBackend.ofCode(bytes.getInt())));
  }

  public Optional<Publication> publication() throws InterruptedException {
    return read(idFile(), 0, publicationBytes()).flatMap(this::parsePublication);
  }

  private Optional<Publication> parsePublication(ByteBuffer bytes) {
    Token session = Token.read(bytes);
    byte[] id = new byte[UniqueId.BYTES];
    bytes.get(id);
    Optional<RankBackend.Mismatch> mismatch = RankBackend.Mismatch.read(bytes);
    Token[] attempts = new Token[jobRank.size() - 1];
    Arrays.setAll(attempts, rank -> Token.read(bytes));
    try {
      return Optional.of(new Publication(session, UniqueId.of(id), mismatch, List.of(attempts)));
    } catch (IllegalArgumentException e) {
      problem(idFile(), "contains no valid unique id: " + e.getMessage());
      return Optional.empty();
    }
  }

  private int announcementBytes() {
    return HEADER_BYTES + 2 * Token.BYTES + Integer.BYTES + DIGEST_BYTES;
  }

  private int publicationBytes() {
    return Math.addExact(
        HEADER_BYTES + UniqueId.BYTES + RankBackend.Mismatch.BYTES + DIGEST_BYTES,
        Math.multiplyExact(jobRank.size(), Token.BYTES));
  }

  private ByteBuffer start(int author, int length) {
    ByteBuffer bytes = ByteBuffer.allocate(length);
    bytes.putLong(MAGIC).putInt(VERSION).putInt(jobRank.size()).putInt(author).putInt(round);
    return bytes.putInt(length);
  }

  private void replace(Path target, ByteBuffer bytes)
      throws InterruptedException, ExchangeFailedException {
    byte[] digest = digest(bytes, bytes.capacity());
    bytes.position(bytes.capacity() - DIGEST_BYTES).put(digest).flip();
    try {
      for (int attempt = 1; !tryReplace(target, bytes.rewind()); attempt++) {
        if (attempt == WRITE_ATTEMPTS) {
          throw new ExchangeFailedException(
              target + " could not be written: another process keeps removing it");
        }
      }
    } catch (ClosedByInterruptException e) {
      throw Interrupts.during("in file access", e);
    } catch (IOException e) {
      throw new ExchangeFailedException(target + " could not be written: " + e, e);
    }
  }

  /** Returns false if the file was removed meanwhile, by a rank 0 that ends an earlier run. */
  private static boolean tryReplace(Path target, ByteBuffer bytes) throws IOException {
    String name = target.getFileName() + "." + Token.random().toHex() + ".tmp";
    Path temporary = target.resolveSibling(name);
    try {
      try (FileChannel channel =
          FileChannel.open(
              temporary,
              Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE),
              attributes(target))) {
        while (bytes.hasRemaining()) {
          channel.write(bytes);
        }
        channel.force(true);
      }
      Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
      return true;
    } catch (NoSuchFileException e) {
      if (!Files.isDirectory(target.getParent())) {
        throw e;
      }
      LOG.debug("{} was removed while it was being written; writing it again", temporary);
      return false;
    } finally {
      Files.deleteIfExists(temporary);
    }
  }

  private static FileAttribute<?>[] attributes(Path target) {
    boolean posix = target.getFileSystem().supportedFileAttributeViews().contains("posix");
    return posix ? new FileAttribute<?>[] {OWNER_ONLY} : new FileAttribute<?>[0];
  }

  /** Returns the body of a file, or empty if it is absent or has a problem. */
  private Optional<ByteBuffer> read(Path file, int author, int length) throws InterruptedException {
    try {
      String defect = "is not a regular file";
      // Checked first, because opening a pipe would block until its other end is opened.
      if (attributesOf(file).isRegularFile()) {
        ByteBuffer bytes = readAtMost(file, length + 1);
        defect = defect(bytes, author, length);
        if (defect == null) {
          problems.remove(file);
          return Optional.of(bytes.position(HEADER_BYTES));
        }
      }
      problem(file, defect);
    } catch (NoSuchFileException e) {
      problems.remove(file);
    } catch (ClosedByInterruptException e) {
      throw Interrupts.during("in file access", e);
    } catch (IOException e) {
      problem(file, "could not be read: " + e);
    }
    return Optional.empty();
  }

  private static BasicFileAttributes attributesOf(Path file) throws IOException {
    return Files.readAttributes(file, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
  }

  private static ByteBuffer readAtMost(Path file, int limit) throws IOException {
    ByteBuffer bytes = ByteBuffer.allocate(limit);
    try (SeekableByteChannel channel =
        Files.newByteChannel(file, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
      while (bytes.hasRemaining() && channel.read(bytes) >= 0) {}
    }
    return bytes.flip();
  }

  /** Returns a description of what is wrong with a file's bytes, or null. */
  private String defect(ByteBuffer bytes, int author, int length) {
    if (bytes.remaining() < HEADER_BYTES + DIGEST_BYTES) {
      return "is damaged: it has only " + bytes.remaining() + " bytes";
    }
    if (bytes.getLong(0) != MAGIC) {
      return "is damaged, or not written by nccl4j: it does not start with nccl4j's magic number";
    }
    int version = bytes.getInt(8);
    if (version != VERSION) {
      return "has version " + version + "; this nccl4j writes version " + VERSION;
    }
    int size = bytes.getInt(12);
    if (size != jobRank.size()) {
      return "is for a world size of " + size + "; this rank's is " + jobRank.size();
    }
    if (bytes.getInt(16) != author || bytes.getInt(20) != round) {
      return "is damaged: its contents are for another rank or round than its name";
    }
    if (bytes.getInt(24) != length || bytes.remaining() != length) {
      String found = bytes.remaining() > length ? "more than " + length : "" + bytes.remaining();
      return "is damaged: it has " + found + " bytes; it should have " + length;
    }
    byte[] stored = new byte[DIGEST_BYTES];
    bytes.get(length - DIGEST_BYTES, stored);
    return Arrays.equals(stored, digest(bytes, length))
        ? null
        : "is damaged: its digest does not match its contents";
  }

  /** Returns the digest of all bytes before the digest. */
  private static byte[] digest(ByteBuffer bytes, int length) {
    byte[] body = new byte[length - DIGEST_BYTES];
    bytes.get(0, body);
    return SessionKeys.sha256(body);
  }

  private void problem(Path file, String text) {
    if (!Objects.equals(problems.put(file, text), text)) {
      LOG.warn("{} {}; waiting for its owner to replace it", file, text);
    }
  }

  /** Updates the timestamp of this rank's file, to show that the rank is alive. */
  public void touch() {
    Path file = rankFile(jobRank.rank());
    try {
      Files.setLastModifiedTime(file, FileTime.from(Instant.now()));
    } catch (NoSuchFileException e) {
      LOG.debug("{} was removed before it was touched; it will be written again", file);
    } catch (IOException e) {
      problem(file, "could not be touched: " + e);
    }
  }

  /** Returns the timestamp of a rank's file, to compare with an earlier one. */
  public Optional<FileTime> lastModified(int rank) {
    Path file = rankFile(rank);
    try {
      return Optional.of(attributesOf(file).lastModifiedTime());
    } catch (NoSuchFileException e) {
      return Optional.empty();
    } catch (IOException e) {
      problem(file, "could not be read: " + e);
      return Optional.empty();
    }
  }

  /** Removes this rank's file if it still belongs to this attempt. */
  public void withdraw(Token attempt) throws InterruptedException {
    if (announcement(jobRank.rank()).filter(found -> found.attempt().equals(attempt)).isPresent()) {
      delete(rankFile(jobRank.rank()));
    }
  }

  /** Removes the id file if it still belongs to this session. */
  public void withdrawPublication(Token session) throws InterruptedException {
    if (publication().filter(found -> found.session().equals(session)).isPresent()) {
      delete(idFile());
    }
  }

  /** Removes every file of this round, including those left by a crashed run. */
  public void sweep() {
    try (DirectoryStream<Path> files = Files.newDirectoryStream(directory, prefix + "*")) {
      files.forEach(RoundDirectory::delete);
    } catch (IOException e) {
      LOG.warn("{}: could not remove the files {}*: {}", directory, prefix, e.toString());
    }
  }

  private static void delete(Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      LOG.warn("{} could not be removed: {}", file, e.toString());
    }
  }
}
