package io.nccl4j.internal.reference.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.RankSets;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInput;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.BitSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class BootstrapTest {
  private final AtomicInteger states = new AtomicInteger();
  private final BitSet silent = new BitSet();
  private final ProcessAddress here = new ProcessEndpoint().address();
  private Message.Body state;
  private final Bootstrap.StateListener listener =
      new Bootstrap.StateListener() {
        @Override
        public void onState(int expected, Message.Body sent) {
          states.incrementAndGet();
          state = sent;
        }

        @Override
        public void onRejected(int rank, String text) {
          throw new AssertionError(text);
        }

        @Override
        public void addSilent(BitSet ranks) {
          ranks.or(silent);
        }
      };

  /** The process that asks may have removed its own bootstrap when the answer arrives. */
  @Test
  void queryIsNotAnsweredOnceTheBootstrapIsOver() {
    Bootstrap bootstrap = bootstrap(0, 1);
    bootstrap.arrive(new Bootstrap.MembershipRequest(0, 0, 0, here));
    bootstrap.report(listener);
    assertEquals(1, states.get());
    bootstrap.arrive(new Bootstrap.MembershipRequest(1, 0, 1, here));
    bootstrap.report(listener);
    assertEquals(1, states.get());
  }

  /**
   * Rank 2 has confirmed, and its process was stopped before it used its connection to rank 0: rank
   * 0 waits for it, and rank 1 for rank 0.
   */
  @Test
  void timeoutNamesTheSilentRankAndNotTheOneThatWaitsForIt() throws IOException {
    Bootstrap coordinating = assigned();
    DataInput assignments = written();
    coordinating.confirm(1);
    coordinating.confirm(2);
    silent.set(2);
    coordinating.report(listener);
    Bootstrap remote = bootstrap(0, 1, 2);
    remote.setCoordinator(new TestCoordinator(() -> remote.applyState(written())));
    remote.applyState(assignments);
    for (Bootstrap bootstrap : List.of(remote, coordinating)) {
      NcclTimeoutException late =
          assertThrows(
              NcclTimeoutException.class, () -> bootstrap.awaitDone(participant(bootstrap, 1)));
      assertEquals(Set.of(2), late.missingRanks());
      assertTrue(late.getMessage().contains("rank 2 did not connect"), late::toString);
      assertEquals(RankSets.of(Set.of(0)), bootstrap.awaited());
    }
  }

  /** Rank 1 waits for rank 2, which was not sent its assignment. */
  @Test
  void connectionIsMissingBecauseOfTheSilentCoordinator() throws IOException {
    assigned();
    Bootstrap remote = bootstrap(0, 1, 2);
    remote.setCoordinator(new TestCoordinator(() -> {}));
    remote.applyState(written());
    Participant participant = participant(remote, 1);
    RankMap rankMap = remote.awaitAssignment(participant).rankMap();
    NcclTimeoutException late =
        assertThrows(
            NcclTimeoutException.class, () -> participant.awaitConnection(rankMap, 2, () -> false));
    assertTrue(late.getMessage().contains("the coordinator did not answer"), late::toString);
    assertEquals(Set.of(), late.missingRanks());
  }

  /** Returns a bootstrap of three processes, coordinated here, at which all have arrived. */
  private Bootstrap assigned() {
    Bootstrap coordinating = bootstrap(0, 1, 2);
    coordinating.addListener(listener);
    for (int rank = 0; rank < 3; rank++) {
      ProcessAddress process = new ProcessEndpoint().address();
      coordinating.arrive(new Bootstrap.MembershipRequest(rank, 0, rank, process));
    }
    return coordinating;
  }

  private static Bootstrap bootstrap(Integer... ranks) {
    return new Bootstrap(
        BootstrapKey.SPLIT, Secret.random(), RankSets.of(Set.of(ranks)), null, done -> {});
  }

  private static Participant participant(Bootstrap bootstrap, int rank) {
    return new Participant(bootstrap, rank, "", Deadline.after(Duration.ofMillis(500)), () -> null);
  }

  private DataInput written() throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    state.write(new DataOutputStream(bytes));
    return new DataInputStream(new ByteArrayInputStream(bytes.toByteArray()));
  }

  private interface Answer {
    void send() throws IOException;
  }

  /** The coordinating process. */
  private record TestCoordinator(Answer answer) implements Bootstrap.Coordinator {
    @Override
    public void arrive(int expected, Bootstrap.MembershipRequest request) {}

    @Override
    public void confirm(int expected, int rank) {}

    @Override
    public void giveUp(int expected, BootstrapFailure why) {}

    @Override
    public void query(int expected) {
      try {
        answer.send();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    @Override
    public String departure() {
      return null;
    }

    @Override
    public String toString() {
      return "the coordinator";
    }
  }
}
