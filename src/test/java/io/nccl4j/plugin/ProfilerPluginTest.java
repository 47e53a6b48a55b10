package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Tests the queue between NCCL's threads and profilers, without NCCL. */
class ProfilerPluginTest {
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
