package io.nccl4j.examples.fuzzing;

import java.io.IOException;
import java.time.Duration;
import java.util.List;

/** Something that parses bytes from others. */
public interface FuzzTarget extends AutoCloseable {
  /**
   * {@return valid inputs, which are mutated} They come from our own encoders.
   *
   * @throws Exception if an encoder fails, which is a failure of the test
   */
  List<Sample> samples() throws Exception;

  /** {@return inputs that once showed a fault, as hexadecimal digits; each run reads them first} */
  default List<String> regressions() {
    return List.of();
  }

  /**
   * Parses one input. The same bytes are read in the same way each time.
   *
   * @param input the bytes, to be used in this call only
   * @throws Exception what the parser throws, or an {@link Error} that says what is wrong
   */
  void read(byte[] input) throws Exception;

  /** {@return the exceptions with which the parser may reject an input, and their subclasses} */
  List<Class<? extends Exception>> documented();

  /**
   * {@return how many bytes may be allocated while an input is read}
   *
   * @param inputBytes the length of the input
   */
  long mostAllocated(int inputBytes);

  /** {@return whether other threads than the caller's do the work, so that all are measured} */
  default boolean usesOtherThreads() {
    return false;
  }

  /** {@return how long one input may take} */
  default Duration limit() {
    return Duration.ofSeconds(5);
  }

  /**
   * Checks, after all inputs, that what was attacked still works.
   *
   * @throws Exception or an {@link Error} if it does not
   */
  default void check() throws Exception {}

  @Override
  default void close() throws IOException {}
}
