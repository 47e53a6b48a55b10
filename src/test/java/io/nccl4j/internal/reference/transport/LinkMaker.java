package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.Path;

/** A process of its own for {@link SharedMemoryFilesTest}: makes a link that nobody opens. */
public final class LinkMaker {
  private LinkMaker() {}

  /**
   * Makes a link's file and waits; the argument is a directory, which becomes the temporary one.
   */
  public static void main(String[] arguments) throws IOException {
    System.setProperty("java.io.tmpdir", arguments[0]);
    SharedMemoryLink link =
        SharedMemoryLink.create(Path.of(arguments[0]), Arena.global(), 4, 1000, 0, 1);
    System.out.println(link.path());
    // Ends when the process that started this one closes the pipe, should it not kill this one.
    System.in.read();
  }
}
