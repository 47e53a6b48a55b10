package io.nccl4j;

import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Interrupts;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.List;
import java.util.RandomAccess;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/**
 * The communicators of ranks that {@link Backend#newCommunicators} made together: the element at
 * index r is rank r's. The list cannot be changed. Closing it closes all of them.
 *
 * <p>
 *
 * {@snippet :
 * try (CommunicatorList comms = backend.newCommunicators(0, 1)) {
 *   Group.run(
 *       () -> {
 *         for (Communicator comm : comms) {
 *           comm.allReduce(buffers[comm.rank()], buffers[comm.rank()], ReduceOp.SUM, streams[comm.rank()]);
 *         }
 *       });
 * }
 * }
 */
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
   * @throws IndexOutOfBoundsException if there is no such rank
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
   * Closes all communicators at the same time, as {@link Communicator#close} does, and waits for
   * all of them. Idempotent.
   *
   * @throws NcclException the first failure, with the others suppressed in it
   * @throws IllegalStateException if this thread is capturing a graph
   */
  @Override
  public void close() {
    List<CompletableFuture<Void>> ends = new ArrayList<>();
    List<Runnable> steps = new ArrayList<>();
    communicators.forEach(
        comm -> steps.add(() -> ends.add(comm.core().closeInBackground().toCompletableFuture())));
    steps.add(() -> CloseAll.all(ends.stream().<Runnable>map(end -> () -> await(end)).toList()));
    CloseAll.all(steps);
  }

  private static void await(CompletableFuture<Void> end) {
    try {
      Interrupts.getUninterruptibly(end::get);
    } catch (ExecutionException e) {
      switch (e.getCause()) {
        case RuntimeException failure -> throw failure;
        case Error failure -> throw failure;
        default -> throw new AssertionError(e.getCause());
      }
    }
  }
}
