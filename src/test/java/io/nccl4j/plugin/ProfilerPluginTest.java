package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;

/**
 * Tests the queue between NCCL's threads and profilers, and what NCCL is to report, without NCCL.
 */
class ProfilerPluginTest {
  @Test
  void ncclReportsNothingWithoutAProfiler() {
    ProfilerPlugin plugin = new ProfilerPlugin();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment mask = arena.allocate(ValueLayout.JAVA_INT);
      MemorySegment context = arena.allocate(ValueLayout.ADDRESS);
      plugin.init(context, 1, mask, MemorySegment.NULL, 1, 1, 0, MemorySegment.NULL);
      assertEquals(0, mask.get(ValueLayout.JAVA_INT, 0));
      Profiler calls = _ -> {};
      Profiler kernels =
          new Profiler() {
            @Override
            public void accept(ProfilerEvent event) {}

            @Override
            public boolean kernelTimes() {
              return true;
            }
          };
      plugin.listen(calls);
      int events = mask.get(ValueLayout.JAVA_INT, 0);
      assertNotEquals(0, events);
      plugin.listen(kernels);
      assertEquals(events | 1 << 6, mask.get(ValueLayout.JAVA_INT, 0));
      plugin.remove(kernels);
      assertEquals(events, mask.get(ValueLayout.JAVA_INT, 0));
      plugin.remove(calls);
      assertEquals(0, mask.get(ValueLayout.JAVA_INT, 0));
    }
  }

  @Test
  void waitEndsWhenEveryProfilerHasSeenTheLastEvent() throws Exception {
    ProfilerPlugin plugin = new ProfilerPlugin();
    List<ProfilerEvent> seen = new CopyOnWriteArrayList<>();
    plugin.listen(
        event -> {
          LockSupport.parkNanos(1_000_000);
          seen.add(event);
        });
    assertTrue(plugin.await(Duration.ofSeconds(1)));
    for (int i = 0; i < 20; i++) {
      plugin.offer(new ProfilerEvent.Stopped(i, 0));
    }
    assertFalse(plugin.await(Duration.ofMillis(1)));
    Thread reader = Thread.ofPlatform().start(plugin::deliver);
    assertTrue(plugin.await(Duration.ofMinutes(1)));
    assertEquals(20, seen.size());
    reader.join();
  }

  @Test
  void profilerCannotWaitForEvents() {
    ProfilerPlugin plugin = new ProfilerPlugin();
    List<ProfilerEvent> seen = new ArrayList<>();
    plugin.listen(
        event -> {
          assertThrows(IllegalStateException.class, () -> plugin.await(Duration.ofMinutes(1)));
          seen.add(event);
        });
    plugin.offer(new ProfilerEvent.Stopped(1, 0));
    plugin.deliver();
    assertEquals(1, seen.size());
  }

  @Test
  void eventsBeyondTheCapacityAreDroppedAndCounted() {
    ProfilerPlugin plugin = new ProfilerPlugin();
    List<ProfilerEvent> seen = new ArrayList<>();
    plugin.listen(seen::add);
    for (int i = 0; i < ProfilerPlugin.CAPACITY + 3; i++) {
      plugin.offer(new ProfilerEvent.Stopped(i, 0));
    }
    assertEquals(3, plugin.dropped());
    plugin.deliver();
    plugin.offer(new ProfilerEvent.Stopped(-1, 0));
    plugin.deliver();
    assertEquals(ProfilerPlugin.CAPACITY + 1, seen.size());
    assertEquals(new ProfilerEvent.Stopped(-1, 0), seen.getLast());
    assertEquals(3, plugin.dropped());
  }
}
