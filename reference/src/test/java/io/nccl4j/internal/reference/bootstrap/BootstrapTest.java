package io.nccl4j.internal.reference.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.internal.util.RankSets;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class BootstrapTest {
  private final AtomicInteger states = new AtomicInteger();
  private final Bootstrap.StateListener listener =
      new Bootstrap.StateListener() {
        @Override
        public void onState(int expected, Message.Body state) {
          states.incrementAndGet();
        }

        @Override
        public void onRejected(int rank, String text) {
          throw new AssertionError(text);
        }
      };

  /** The process that asks may have removed its own bootstrap when the answer arrives. */
  @Test
  void queryIsNotAnsweredOnceTheBootstrapIsOver() {
    ProcessAddress here = new ProcessEndpoint().address();
    Bootstrap bootstrap =
        new Bootstrap(
            BootstrapKey.SPLIT, Secret.random(), RankSets.of(Set.of(0, 1)), null, done -> {});
    bootstrap.arrive(new Bootstrap.MembershipRequest(0, 0, 0, here));
    bootstrap.report(listener);
    assertEquals(1, states.get());
    bootstrap.arrive(new Bootstrap.MembershipRequest(1, 0, 1, here));
    bootstrap.report(listener);
    assertEquals(1, states.get());
  }
}
