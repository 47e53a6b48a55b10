package io.nccl4j.verification;

import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Stream;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.rank.RankExecution;
import io.nccl4j.internal.reference.stream.ReferenceStream;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.EnqueuedCall;
import io.nccl4j.spi.LaunchListener;
import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.NullMarked;

/**
 * Compares the calls of all ranks before each launch of a collective on NCCL, which itself would
 * hang or compute wrong data: operation, count, type, operator and root, as {@code
 * TORCH_DISTRIBUTED_DEBUG=DETAIL} does in PyTorch. For debugging: each collective waits on the host
 * until every rank has called it.
 *
 * {@snippet :
 * try (CallCheck _ = CallCheck.of(comm, Duration.ofSeconds(30))) {
 *   train(comm);
 * }
 * }
 *
 * <p>If calls differ, the call throws {@link NcclInvalidUsageException} on every rank, with the
 * message of the reference; if a rank does not call, it throws {@link NcclTimeoutException} on the
 * waiting ranks, whose {@link NcclException#missingRanks} are those ranks. Nothing is launched
 * then, and later collectives throw, too, until the check is closed. If a group has calls of
 * several communicators, ranks that are only in the others may have launched theirs. The numbers in
 * messages count the collectives since the check began. Sends and receives are not compared.
 */
@NullMarked
public final class CallCheck implements AutoCloseable {
  private final Communicator communicator;
  private final Peers peers;
  private boolean closed;

  private CallCheck(Communicator communicator, Peers peers) {
    this.communicator = communicator;
    this.peers = peers;
  }

  /**
   * Begins to compare the calls of a communicator. Every rank calls it, in its own thread, between
   * the same operations. It is a collective step, as {@link Verification#sampling} is.
   *
   * @param communicator a connected communicator of NCCL; its children are not compared
   * @param timeout the longest time that a call waits for another rank; positive
   * @return the check; the caller closes it
   * @throws IllegalArgumentException if {@code communicator} is of another backend, or the timeout
   *     is not positive
   * @throws IllegalStateException if the communicator is not open, or compared or verified already
   * @throws NcclException if the ranks cannot connect
   */
  public static CallCheck of(Communicator communicator, Duration timeout) {
    NcclCommunicator.of(communicator);
    Arguments.positive(timeout, "timeout");
    Peers peers = Peers.connect(communicator, "call check", timeout);
    try {
      Contract.get().listen(communicator, new Comparing(peers.link()));
      return new CallCheck(communicator, peers);
    } catch (Throwable failure) {
      CloseAll.after(failure, peers::close);
      throw failure;
    }
  }

  /** Has the reference wait for the same calls of all ranks, which move no data. */
  private record Comparing(Peers.Link link) implements LaunchListener {
    @Override
    public void launching(EnqueuedCall call, long number, boolean graph, boolean alone) {
      BufferMemory memory = call.sendMemory() == null ? call.recvMemory() : call.sendMemory();
      ReferenceCommunicator reference =
          (ReferenceCommunicator) Contract.get().driver(link.communicator());
      ((ReferenceStream) Contract.get().driver(link.stream()))
          .launch(
              List.of(
                  new RankExecution(
                      reference.hostedRank(),
                      List.of(
                          Turn.call(
                              call.operation(),
                              memory.type(),
                              call.count(),
                              call.operator(),
                              call.peer())))));
    }

    @Override
    public void awaitOthers() {
      Stream stream = link.stream();
      stream.synchronize();
    }

    @Override
    public void launched(EnqueuedCall call, long number, Outcome outcome) {
      // Compared before.
    }
  }

  /** Ends the comparison; calls are launched without it. Idempotent. */
  @Override
  public void close() {
    if (!closed) {
      closed = true;
      Contract.get().listen(communicator, null);
      peers.close();
    }
  }
}
