package io.nccl4j.contract;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/** What the contract suite must know of the backend that it runs on. */
public interface BackendUnderTest {
  /** Opens a backend with a device for each of so many ranks, or with as many as there are. */
  Backend open(int ranks);

  /** The largest communicator that can be made. */
  int maxRanks();

  /** Whether reductions of float8 work on the devices at hand. */
  default boolean reducesFloat8() {
    return true;
  }

  /** Whether float8 can be moved at all. */
  default boolean movesFloat8() {
    return true;
  }

  /** The types that can be moved. */
  default List<DataType> movedTypes() {
    return Arrays.stream(DataType.values()).filter(t -> !t.float8() || movesFloat8()).toList();
  }

  /** Whether this type can be reduced. */
  default boolean reduces(DataType type) {
    return !type.float8() || reducesFloat8();
  }

  /** The configuration of communicators whose test says nothing else. */
  default CommunicatorConfig config() {
    return CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));
  }

  /** Those of the wished rank counts that are possible here. */
  default List<Integer> rankCounts(int... wished) {
    return IntStream.of(wished).filter(n -> n <= maxRanks()).boxed().toList();
  }
}
