package io.nccl4j.rendezvous;

import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;

/** A directory on this host that only this user can access. */
final class PrivateDirectory {
  private static final Set<PosixFilePermission> OWNER_ONLY =
      PosixFilePermissions.fromString("rwx------");

  private PrivateDirectory() {}

  /**
   * Returns the user's directory under the temporary directory, creating it if absent.
   *
   * @throws RendezvousException if it cannot be created, or the path exists and is not a directory
   *     that only this user can access
   */
  static Path under(Path temporary) {
    try {
      Integer uid = userNumber(Path.of("/proc/self"));
      Path directory = temporary.resolve("nccl4j-" + uid).toAbsolutePath();
      try {
        Files.createDirectory(directory, PosixFilePermissions.asFileAttribute(OWNER_ONLY));
      } catch (FileAlreadyExistsException e) {
        check(directory, uid, e);
      }
      return directory;
    } catch (IOException e) {
      throw new RendezvousException(
          "no private directory can be created under " + temporary + ": " + e, e);
    }
  }

  /** Returns the number of the user of this process, whose directory under /proc is given. */
  static Integer userNumber(Path process) throws IOException {
    try {
      return (Integer) Files.getAttribute(process, "unix:uid");
    } catch (NoSuchFileException | UnsupportedOperationException | IllegalArgumentException e) {
      throw new IOException(
          process
              + " does not tell which user this process has: between processes nccl4j needs Linux;"
              + " ranks of one process run on any system",
          e);
    }
  }

  private static void check(Path directory, Integer uid, FileAlreadyExistsException cause)
      throws IOException {
    PosixFileAttributes found =
        Files.readAttributes(directory, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    Object owner = Files.getAttribute(directory, "unix:uid", LinkOption.NOFOLLOW_LINKS);
    if (!found.isDirectory() || !owner.equals(uid) || !found.permissions().equals(OWNER_ONLY)) {
      throw new RendezvousException(
          directory
              + " is not a directory that user "
              + uid
              + " owns and only that user can access; remove it, or set "
              + RendezvousEndpoint.VARIABLE,
          cause);
    }
  }
}
