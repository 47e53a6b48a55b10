package io.nccl4j.contract;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.List;

/**
 * A blocked stream: rank 0 of two has enqueued a collective that rank 1 does not join. Both ranks
 * have completed one collective before, so that they are connected and enqueuing does not block.
 */
final class StuckCollective implements AutoCloseable {
  private final Ranks ranks;
  private final Stream stream;
  private final Buffer value;
  private boolean enqueued;

  private StuckCollective(Ranks ranks) {
    this.ranks = ranks;
    this.stream = rank().comm().newStream();
    this.value = rank().comm().newBuffer(DataType.INT32, 4);
  }

  /** Creates the two ranks; {@link #begin} then enqueues the collective. */
  static StuckCollective prepare(BackendUnderTest underTest) {
    return prepare(underTest, "");
  }

  static StuckCollective start(BackendUnderTest underTest) {
    return start(underTest, "");
  }

  /** Starts a collective of communicators with a name. */
  static StuckCollective start(BackendUnderTest underTest, String name) {
    StuckCollective stuck = prepare(underTest, name);
    stuck.cacheMemory();
    stuck.begin();
    return stuck;
  }

  private static StuckCollective prepare(BackendUnderTest underTest, String name) {
    assumeTrue(underTest.maxRanks() > 1, "needs two ranks");
    Ranks ranks = Ranks.of(underTest, 2, underTest.config().withBlocking(false).withName(name));
    ranks.each(
        rank -> {
          Buffer warm = rank.ints(1, 2, 3, 4);
          rank.comm().allReduce(warm, warm, ReduceOp.SUM, rank.stream());
        });
    return new StuckCollective(ranks);
  }

  /**
   * Allocates and frees buffers of the sizes that the tests need, so that the tests reuse that
   * memory: while the collective runs, a new allocation on a GPU may wait for it.
   */
  private void cacheMemory() {
    List<Buffer> spare = new ArrayList<>();
    for (int bytes : new int[] {4, 4, 10, 16, 16, 16, 16, 16, 16, 32, 100}) {
      spare.add(rank().comm().newBuffer(DataType.UINT8, bytes));
    }
    spare.forEach(Buffer::close);
  }

  /** Enqueues the collective of rank 0, once. */
  void begin() {
    if (!enqueued) {
      enqueued = true;
      rank().comm().allReduce(value, value, ReduceOp.SUM, stream);
    }
  }

  /** Returns the rank that waits. */
  Rank rank() {
    return ranks.rank(0);
  }

  /** Returns the rank that does not join. */
  Rank absent() {
    return ranks.rank(1);
  }

  Ranks ranks() {
    return ranks;
  }

  Communicator comm() {
    return rank().comm();
  }

  Stream stream() {
    return stream;
  }

  /** Makes rank 1 join, which completes the collective. */
  void join() {
    Buffer late = absent().ints(0, 0, 0, 0);
    absent().comm().allReduce(late, late, ReduceOp.SUM, absent().stream());
    absent().stream().synchronize();
  }

  @Override
  public void close() {
    ranks.abort();
    try {
      stream.synchronize();
    } catch (NcclException expected) {
      // It depends on the backend whether the wait reports the abort.
    }
    stream.close();
    value.close();
    ranks.close();
  }
}
