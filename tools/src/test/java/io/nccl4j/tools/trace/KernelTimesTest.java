package io.nccl4j.tools.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.internal.jfr.CollectiveEvent;
import io.nccl4j.internal.jfr.KernelEvent;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import jdk.jfr.Recording;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Spans of operations whose kernels were measured. */
class KernelTimesTest {
  @TempDir Path folder;

  private static CollectiveEvent operation(long sequence, String algorithm, int channels)
      throws InterruptedException {
    CollectiveEvent event = new CollectiveEvent();
    event.operation = "allReduce";
    event.communicator = "1f2e3d4c";
    event.sequence = sequence;
    event.ranks = 2;
    event.peer = -1;
    event.type = "FLOAT32";
    event.algorithm = algorithm;
    event.protocol = algorithm == null ? null : "LL";
    event.channels = channels;
    event.begin();
    Thread.sleep(30);
    event.end();
    event.queued = TimeUnit.MILLISECONDS.toNanos(1);
    event.commit();
    return event;
  }

  @Test
  void kernelsTellWhenOperationsStarted() throws Exception {
    Path file = folder.resolve("recording.jfr");
    try (Recording recording = new Recording()) {
      recording.start();
      new KernelEvent(operation(1, "RING", 4), TimeUnit.MILLISECONDS.toNanos(10)).commit();
      operation(2, null, 1);
      // The timer of a GPU is not the clock of its host.
      new KernelEvent(operation(3, null, 0), TimeUnit.SECONDS.toNanos(60)).commit();
      recording.dump(file);
    }
    Map<Long, TraceSpan> spans =
        RecordingReader.of(file, Set.of()).spans().stream()
            .collect(Collectors.toMap(span -> span.operation().sequence(), span -> span));
    TraceSpan measured = spans.get(1L);
    assertEquals(10_000_000, measured.ended() - measured.begun());
    assertEquals("RING, LL, 4 channels", measured.operation().choice());
    TraceSpan assumed = spans.get(2L);
    assertEquals(1_000_000, assumed.begun() - assumed.called());
    assertEquals("1 channel", assumed.operation().choice());
    TraceSpan longer = spans.get(3L);
    assertEquals(longer.called(), longer.begun());
    assertEquals(null, longer.operation().choice());
  }
}
