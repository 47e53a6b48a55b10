package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.Path;

/** A child process of {@link SharedMemoryFilesTest} that creates a link which is never opened. */
public final class LinkMaker {
  private LinkMaker() {}

  /** Creates a link's file and waits; the argument is the temporary directory. */
  public static void main(String[] arguments) throws IOException {
    System.setProperty("java.io.tmpdir", arguments[0]);
    SharedMemoryLink link =
        SharedMemoryLink.create(Path.of(arguments[0]), Arena.global(), 4, 1000, 0, 1);
    System.out.println(link.path());
    // Ends when the parent process closes the pipe, unless it kills this one.
    System.in.read();
  }
}
