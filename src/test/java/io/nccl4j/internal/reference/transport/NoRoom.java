package io.nccl4j.internal.reference.transport;

import io.nccl4j.NcclSystemException;
import java.lang.foreign.Arena;
import java.nio.file.Path;

/** A process of its own for {@link SharedMemoryLinkTest}, which may write no large files. */
public final class NoRoom {
  private NoRoom() {}

  /** Asks for more than there is; the argument is a directory. */
  public static void main(String[] arguments) {
    try {
      SharedMemoryLink.create(Path.of(arguments[0]), Arena.global(), 8, 1 << 20, 0, 1);
      System.out.println("made");
    } catch (NcclSystemException e) {
      System.out.println(e.getMessage());
    }
  }
}
