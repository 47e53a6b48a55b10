package io.nccl4j;

import io.nccl4j.spi.Background;
import java.util.AbstractList;
import java.util.List;
import java.util.RandomAccess;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;
import org.jspecify.annotations.NullMarked;

/**
 * The communicators that {@link Backend#newCommunicators} created together, in rank order.
 *
 * {@snippet :
 * try (CommunicatorList comms = backend.newCommunicators(0, 1)) {
 *   Group.run(() -> {
 *     for (Communicator comm : comms) {
 *       Buffer buffer = buffers[comm.rank()];
 *       comm.allReduce(buffer, buffer, ReduceOp.SUM, streams[comm.rank()]);
 *     }
 *   });
 * }
 * }
 *
 * <p>The list is immutable. Closing it closes all communicators.
 */
@NullMarked
public final class CommunicatorList extends AbstractList<Communicator>
    implements AutoCloseable, RandomAccess {
  private final List<Communicator> communicators;

  CommunicatorList(List<Communicator> communicators) {
    this.communicators = List.copyOf(communicators);
  }

  /**
   * {@return the communicator of a rank}
   *
   * @param rank the rank, from 0 to {@code size() - 1}
   * @throws IndexOutOfBoundsException if the rank is out of range
   */
  @Override
  public Communicator get(int rank) {
    return communicators.get(rank);
  }

  /** {@return the number of ranks} */
  @Override
  public int size() {
    return communicators.size();
  }

  /**
   * Closes all communicators concurrently, as {@link Communicator#close} does, and waits for all of
   * them. Idempotent.
   *
   * @throws NcclException if closing one fails; the failures of others are suppressed in it
   * @throws CudaException likewise
   * @throws IllegalStateException if this thread is capturing a graph, or other code captures a
   *     stream that has operations of these communicators; none of them is closed then
   */
  @Override
  public void close() {
    communicators.forEach(comm -> comm.core().checkCanClose());
    Background.together(
        communicators.stream()
            .<Supplier<CompletionStage<Void>>>map(comm -> comm.core()::closeInBackground)
            .toList());
  }
}
