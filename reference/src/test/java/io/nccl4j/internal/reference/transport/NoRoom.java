package io.nccl4j.internal.reference.transport;

import io.nccl4j.NcclSystemException;
import java.lang.foreign.Arena;
import java.nio.file.Path;

/** A child process of {@link SharedMemoryLinkTest} that may not write large files. */
public final class NoRoom {
  private NoRoom() {}

  /** Creates a link that exceeds the limit; the argument is a directory. */
  public static void main(String[] arguments) {
    try {
      SharedMemoryLink.create(Path.of(arguments[0]), Arena.global(), 8, 1 << 20, 0, 1);
      System.out.println("made");
    } catch (NcclSystemException e) {
      System.out.println(e.getMessage());
    }
  }
}
