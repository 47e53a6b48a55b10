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
 * A stream that stands still: rank 0 of two has enqueued a collective that rank 1 does not join.
 * Both had one together before, so that connections are up and enqueuing itself does not wait.
 */
final class StuckCollective implements AutoCloseable {
  private final Ranks ranks;
  private final Stream stream;
  private final Buffer value;
  private boolean begun;

  private StuckCollective(Ranks ranks) {
    this.ranks = ranks;
    this.stream = rank().comm().newStream();
    this.value = rank().comm().newBuffer(DataType.INT32, 4);
  }

  /** Makes the two ranks and whatever they need; {@link #begin} then enqueues the collective. */
  static StuckCollective prepare(BackendUnderTest underTest) {
    return prepare(underTest, "");
  }

  static StuckCollective start(BackendUnderTest underTest) {
    return start(underTest, "");
  }

  /** Starts one whose communicator has a name. */
  static StuckCollective start(BackendUnderTest underTest, String name) {
    StuckCollective made = prepare(underTest, name);
    made.keepMemory();
    made.begin();
    return made;
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
   * Leaves memory of the sizes that tests allocate for them to reuse: while the collective runs, an
   * allocation on a GPU may wait for it.
   */
  private void keepMemory() {
    List<Buffer> spare = new ArrayList<>();
    for (int bytes : new int[] {4, 4, 10, 16, 16, 16, 16, 16, 16, 32, 100}) {
      spare.add(rank().comm().newBuffer(DataType.UINT8, bytes));
    }
    spare.forEach(Buffer::close);
  }

  /** Enqueues the collective of rank 0, once. */
  void begin() {
    if (!begun) {
      begun = true;
      rank().comm().allReduce(value, value, ReduceOp.SUM, stream);
    }
  }

  /** The rank that waits. */
  Rank rank() {
    return ranks.rank(0);
  }

  /** The rank that does not come. */
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

  /** Lets rank 1 come after all. */
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
      // Whether the wait or only the work is told of the abort is the backend's affair.
    }
    stream.close();
    value.close();
    ranks.close();
  }
}
