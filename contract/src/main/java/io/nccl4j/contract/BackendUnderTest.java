package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclTimeoutException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/** Opens the backend that the contract suite runs on, and describes what it supports. */
public interface BackendUnderTest {
  /** Opens a backend with one device for each of {@code ranks} ranks, or with all that exist. */
  Backend open(int ranks);

  /** Returns the size of the largest communicator that can be created. */
  int maxRanks();

  /** Returns whether the available devices can reduce float8 data. */
  default boolean reducesFloat8() {
    return true;
  }

  /** Returns whether float8 data can be moved. */
  default boolean movesFloat8() {
    return true;
  }

  /** Returns the types that can be moved. */
  default List<DataType> movedTypes() {
    return Arrays.stream(DataType.values()).filter(t -> !t.float8() || movesFloat8()).toList();
  }

  /** Returns whether a type can be reduced. */
  default boolean reduces(DataType type) {
    return !type.float8() || reducesFloat8();
  }

  /** Returns whether {@code ranks} ranks can average a type, or multiply it before its sum. */
  default boolean scales(DataType type, int ranks) {
    return reduces(type);
  }

  /** Returns the configuration of communicators whose test does not specify one. */
  default CommunicatorConfig config() {
    return CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));
  }

  /**
   * Returns a timeout for calls that are meant to time out; a communicator can be created in it.
   */
  default Duration shortTimeout() {
    return Duration.ofMillis(600);
  }

  /** Returns a configuration that does not block, with the short timeout. */
  default CommunicatorConfig shortTimeoutConfig() {
    return config().withBlocking(false).withTimeout(shortTimeout());
  }

  /**
   * Checks that a message has the short timeout, or the limit of a wait around it, which is one
   * second longer. On a busy machine, that wait may end first.
   */
  default void assertShortTimeout(NcclTimeoutException thrown) {
    String message = thrown.getMessage();
    double seconds = shortTimeout().toMillis() / 1000.0;
    assertTrue(
        message.contains(seconds + " s") || message.contains(seconds + 1 + " s"), thrown::toString);
  }

  /** Returns whether the tests of a topic share communicators, because creating one takes long. */
  default boolean sharesRanks() {
    return false;
  }

  /** Returns those of the requested rank counts that are possible here. */
  default List<Integer> rankCounts(int... requested) {
    return IntStream.of(requested).filter(n -> n <= maxRanks()).boxed().toList();
  }
}
