package io.nccl4j.internal.reference.transport;

import static org.junit.jupiter.api.Assertions.assertFalse;

import java.lang.reflect.Proxy;
import java.net.ProtocolException;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests what another process announces to a communicator that has ended in this process. */
class SharedMemoryTransportTest {
  private final LinkTable links = new LinkTable(contextOfRankOne());
  @TempDir private Path directory;

  @Test
  void filesAreNotOpenedAfterTheEnd() throws ProtocolException {
    Path file = SharedMemoryFiles.newPath(directory);
    LinkKey key = new LinkKey(Route.MESSAGES, 0, 0, 1);
    links.close();
    links.sharedMemory().receive(key, file.toString());
    assertFalse(links.sharedMemory().receiveLink(key).ready(), "no failure to open it is kept");
  }

  /** Returns the context of rank 1 of 2, which shares memory with rank 0 of another process. */
  private static LinkContext contextOfRankOne() {
    return (LinkContext)
        Proxy.newProxyInstance(
            LinkContext.class.getClassLoader(),
            new Class<?>[] {LinkContext.class},
            (proxy, method, arguments) ->
                switch (method.getName()) {
                  case "size" -> 2;
                  case "sliceBytes" -> 64;
                  case "hosts" -> (int) arguments[0] == 1;
                  case "sharesMemoryWith" -> true;
                  default -> throw new UnsupportedOperationException(method.getName());
                });
  }
}
