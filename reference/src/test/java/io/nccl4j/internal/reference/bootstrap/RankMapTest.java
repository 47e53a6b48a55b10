package io.nccl4j.internal.reference.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.NcclRemoteException;
import io.nccl4j.internal.util.Deadline;
import java.time.Duration;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.CancellationException;
import org.junit.jupiter.api.Test;

/** Tests that the ranks of a process form its part of a communicator once. */
class RankMapTest {
  private final ProcessAddress here = new ProcessEndpoint().address();
  private final RankMap rankMap = RankMap.of(Secret.random(), List.of(here, here));
  private final Bootstrap bootstrap =
      new Bootstrap("newCommunicator", Secret.random(), new BitSet(), null, done -> {});

  private Participant participant(int rank) {
    Deadline deadline = Deadline.after(Duration.ofSeconds(10));
    return new Participant(bootstrap, rank, "the communicator", deadline, () -> null);
  }

  @Test
  void interruptOfTheFirstRankFailsTheOthers() {
    CancellationException interrupted = new CancellationException("interrupted while waiting");
    CancellationException first =
        assertThrows(
            CancellationException.class,
            () ->
                rankMap.form(
                    Object.class,
                    participant(0),
                    () -> {
                      throw interrupted;
                    }));
    assertEquals(interrupted, first);
    NcclRemoteException second =
        assertThrows(
            NcclRemoteException.class,
            () -> rankMap.form(Object.class, participant(1), Object::new));
    assertEquals("rank 0 was interrupted while waiting", second.text());
  }
}
