package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Group;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclConfig;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionStage;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/**
 * Tests that communicators are created on threads with a large stack: NCCL searches the machine's
 * topology recursively, which on a large machine needs more stack than Java's default.
 */
@OnStandIn
class InitStackTest {
  private static final int STACK_BYTES = 2 << 20;
  private static final int RANKS = 3;
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));

  @RegisterExtension private final CommunicatorCount communicators = new CommunicatorCount();

  @BeforeEach
  void requireLargeStack() {
    StandIn.initStack(STACK_BYTES);
  }

  @Test
  void oneRank_isCreatedOnLargeStack() {
    try (Backend backend = NcclBackend.open();
        Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG)) {
      assertEquals(1, comm.size());
    }
  }

  @Test
  void ranksOfOneGroup_areCreatedOnLargeStacks() {
    try (Backend backend = NcclBackend.open()) {
      UniqueId id = backend.newUniqueId();
      List<Communicator> ranks = new ArrayList<>();
      Group.run(
          () -> {
            for (int rank = 0; rank < RANKS; rank++) {
              ranks.add(backend.newCommunicator(id, RANKS, rank, CONFIG));
            }
          });
      assertEquals(List.of(0, 1, 2), ranks.stream().map(Communicator::rank).toList());
      ranks.forEach(Communicator::close);
    }
  }

  @Test
  void asynchronousForm_createsOnLargeStack() {
    try (Backend backend = NcclBackend.open()) {
      UniqueId id = backend.newUniqueId();
      List<CompletionStage<Communicator>> stages = new ArrayList<>();
      for (int rank = 0; rank < RANKS; rank++) {
        stages.add(
            NcclBackend.of(backend).newCommunicatorAsync(id, RANKS, rank, NcclConfig.of(CONFIG)));
      }
      List<Communicator> ranks = stages.stream().map(Pair::await).toList();
      assertEquals(List.of(0, 1, 2), ranks.stream().map(Communicator::rank).toList());
      ranks.forEach(Communicator::close);
    }
  }
}
