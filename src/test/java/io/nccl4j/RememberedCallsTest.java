package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.natives.OnStandIn;
import io.nccl4j.nccl.NcclCommunicator;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Which all-reduces a buffer remembers; that they are checked is in the contract suite. */
@OnStandIn
class RememberedCallsTest {
  private Backend backend;
  private List<Communicator> ranks;
  private Buffer send;

  @BeforeEach
  void connect() {
    backend = Backend.nccl();
    connectAgain();
    send = backend.allocate(0, DataType.INT32, 1);
  }

  private void connectAgain() {
    ranks = backend.communicators(CommunicatorConfig.defaults(), 0, 1);
  }

  @AfterEach
  void end() {
    ranks.forEach(Communicator::abort);
    send.close();
    backend.close();
  }

  /** Makes the call of rank 0 twice, together with its peer. */
  private void reduceTwice(Buffer recv, Stream stream) throws InterruptedException {
    try (Stream peers = backend.newStream(1);
        Buffer theirs = backend.allocate(1, DataType.INT32, 1)) {
      Thread peer =
          Thread.ofPlatform()
              .start(
                  () -> {
                    ranks.get(1).allReduce(theirs, theirs, ReduceOp.SUM, peers);
                    ranks.get(1).allReduce(theirs, theirs, ReduceOp.SUM, peers);
                  });
      ranks.get(0).allReduce(send, recv, ReduceOp.SUM, stream);
      ranks.get(0).allReduce(send, recv, ReduceOp.SUM, stream);
      peer.join();
      stream.synchronize();
      peers.synchronize();
    }
  }

  private boolean remembers(Buffer recv, Stream stream) {
    OperationCall known = send.allReduce();
    return known != null && known.isAllReduce(ranks.get(0), recv, ReduceOp.SUM, stream);
  }

  @Test
  void aCallThatComesAgainIsRemembered() throws InterruptedException {
    try (Stream stream = backend.newStream(0)) {
      reduceTwice(send, stream);
      assertTrue(remembers(send, stream));
      OperationCall known = send.allReduce();
      reduceTwice(send, stream);
      assertSame(known, send.allReduce());
    }
  }

  @Test
  void aNewStreamInEachEpochIsRememberedHoweverManyThereWere() throws InterruptedException {
    for (int epoch = 0; epoch < 40; epoch++) {
      try (Stream stream = backend.newStream(0)) {
        reduceTwice(send, stream);
        assertTrue(remembers(send, stream), "epoch " + epoch);
      }
    }
  }

  @Test
  void aNewCommunicatorInEachEpochIsRememberedHoweverManyThereWere() throws InterruptedException {
    try (Stream stream = backend.newStream(0)) {
      for (int epoch = 0; epoch < 40; epoch++) {
        reduceTwice(send, stream);
        assertTrue(remembers(send, stream), "epoch " + epoch);
        ranks.forEach(Communicator::abort);
        assertThrows(CommunicatorAbortedException.class, stream::synchronize);
        connectAgain();
      }
    }
  }

  @Test
  void aNewResultInEachStepIsRememberedHoweverManyThereWere() throws InterruptedException {
    try (Stream stream = backend.newStream(0)) {
      for (int step = 0; step < 40; step++) {
        try (Buffer recv = backend.allocate(0, DataType.INT32, 1)) {
          reduceTwice(recv, stream);
          assertTrue(remembers(recv, stream), "step " + step);
        }
      }
    }
  }

  @Test
  void aCallThatComesToStayIsRememberedInTheEndAlsoAmongOthersThatStayOpen()
      throws InterruptedException {
    try (Stream stream = backend.newStream(0);
        Buffer results = backend.allocate(0, DataType.INT32, 100)) {
      for (int other = 0; other < 100; other++) {
        reduceTwice(results.slice(other, 1), stream);
      }
      int calls = 0;
      while (!remembers(send, stream) && calls < 400) {
        reduceTwice(send, stream);
        calls += 2;
      }
      assertTrue(remembers(send, stream), "after " + calls + " calls");
    }
  }

  @Test
  void callsThatNeverRepeatMakeFewObjects() throws InterruptedException {
    Set<OperationCall> made = Collections.newSetFromMap(new IdentityHashMap<>());
    try (Stream one = backend.newStream(0);
        Stream other = backend.newStream(0)) {
      for (int i = 0; i < 500; i++) {
        reduceTwice(send, i % 2 == 0 ? one : other);
        made.add(send.allReduce());
      }
    }
    assertTrue(made.size() <= 12, made.size() + " objects for 1000 calls");
  }

  @Test
  void aCallThatComesWhileItsCommunicatorClosesIsRefusedAndDisturbsNobody() throws Exception {
    for (int round = 0; round < 1000; round++) {
      try (Stream stream = backend.newStream(0)) {
        reduceTwice(send, stream);
        List<CompletableFuture<Void>> closing = new ArrayList<>();
        for (Communicator rank : ranks) {
          closing.add(NcclCommunicator.of(rank).closeAsync().toCompletableFuture());
        }
        while (!closing.stream().allMatch(CompletableFuture::isDone)) {
          assertThrows(
              IllegalStateException.class,
              () -> ranks.get(0).allReduce(send, send, ReduceOp.SUM, stream));
        }
        for (CompletableFuture<Void> end : closing) {
          end.get(20, TimeUnit.SECONDS);
        }
      }
      connectAgain();
    }
  }
}
