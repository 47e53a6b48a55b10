package io.nccl4j.internal.reference.transport;

import io.nccl4j.reference.RankProcesses;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * A child process of {@link SharedMemoryLinkTest}: rank 1, which opens two links to rank 0 and
 * sends back each slice with 1 added to every byte, until an empty slice arrives.
 */
public final class LinkPeer {
  private static final long LIMIT_NANOS = 60_000_000_000L;

  private LinkPeer() {}

  /** Answers slices; the arguments are the paths of the link from rank 0 and the link to it. */
  public static void main(String[] arguments) {
    Arena arena = Arena.global();
    SharedMemoryLink in = SharedMemoryLink.open(Path.of(arguments[0]), arena, 0, 1, 1);
    SharedMemoryLink out = SharedMemoryLink.open(Path.of(arguments[1]), arena, 1, 0, 1);
    System.out.println("open");
    boolean last = false;
    while (!last) {
      await(in::ready);
      await(out::hasRoom);
      last = in.bytes() == 0;
      MemorySegment claimed = out.claim();
      for (long i = 0; i < in.bytes(); i++) {
        byte value = in.memory().get(ValueLayout.JAVA_BYTE, in.offset() + i);
        claimed.set(ValueLayout.JAVA_BYTE, out.claimed() + i, (byte) (value + 1));
      }
      out.send(claimed, out.claimed(), in.bytes(), -in.signature());
      in.release();
    }
  }

  /** A condition that another process or thread makes true. */
  interface Condition {
    boolean holds();
  }

  @SuppressWarnings("ThreadPriorityCheck") // Yields to the other process.
  static void await(Condition condition) {
    long start = System.nanoTime();
    while (!condition.holds()) {
      if (System.nanoTime() - start > LIMIT_NANOS) {
        throw new AssertionError("the condition was not met within a minute");
      }
      Thread.yield();
    }
  }

  /** Starts a test class as a process, after a shell command such as {@code ulimit}. */
  static Process start(String before, Class<?> main, String... arguments) throws IOException {
    List<String> command = new ArrayList<>(List.of("sh", "-c", before + " exec \"$0\" \"$@\""));
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-Xlog:disable", "-cp"));
    command.add(RankProcesses.classPath());
    command.add(main.getName());
    command.addAll(List.of(arguments));
    return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
  }
}
