package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.nccl4j.spi.CallCount;
import org.junit.jupiter.api.Test;

/** Which collective is the oldest that has not completed, and what was called since. */
class OperationNumbersTest {
  private final OperationNumbers numbers = new OperationNumbers(null);

  private long call(Operation operation) {
    long number = numbers.count(operation, 0, false);
    numbers.launched(number);
    return number;
  }

  @Test
  void nothingIsPendingAtFirst() {
    assertEquals(0, numbers.oldestPending());
    assertNull(numbers.operation(0));
  }

  @Test
  void laterCallsOfTheSameOperationAreCounted() {
    call(Operation.ALL_REDUCE);
    call(Operation.ALL_GATHER);
    call(Operation.ALL_REDUCE);
    numbers.count(Operation.ALL_GATHER, 0, true);
    call(Operation.ALL_GATHER);
    numbers.completed(Operation.ALL_REDUCE, 1);
    assertEquals(2, numbers.oldestPending());
    assertEquals(Operation.ALL_GATHER, numbers.operation(2));
    assertEquals(new CallCount(1, 1, 0), numbers.calls(2));
    assertEquals(new CallCount(1, 1, 0), numbers.calls(1));
    assertEquals(new CallCount(2, 0, 0), numbers.calls(5));
    assertEquals(CallCount.UNKNOWN, numbers.calls(4));
    assertEquals(CallCount.UNKNOWN, numbers.calls(0));
  }

  @Test
  void callThatHasNotReturnedIsNotLater() {
    call(Operation.ALL_REDUCE);
    assertEquals(2, numbers.count(Operation.ALL_REDUCE, 0, false));
    assertEquals(new CallCount(1, 0, 1), numbers.calls(1));
    assertEquals(new CallCount(2, -1, 0), numbers.calls(2));
    numbers.launched(2);
    assertEquals(new CallCount(1, 1, 0), numbers.calls(1));
    assertEquals(new CallCount(2, 0, 0), numbers.calls(2));
  }

  @Test
  void capturedOperationIsNotNamed() {
    numbers.count(Operation.ALL_REDUCE, 0, true);
    assertEquals(1, numbers.oldestPending());
    assertNull(numbers.operation(1));
  }

  @Test
  void rejectedCallIsForgotten() {
    call(Operation.REDUCE);
    numbers.uncount(Operation.REDUCE, 0, false);
    assertEquals(0, numbers.oldestPending());
    assertEquals(1, call(Operation.BROADCAST));
    assertEquals(Operation.BROADCAST, numbers.operation(1));
    assertEquals(2, call(Operation.REDUCE));
    assertEquals(new CallCount(1, 0, 0), numbers.calls(2));
  }

  /** A device completes the collectives of a communicator in order; not all are followed. */
  @Test
  void completionIncludesEarlierCollectives() {
    for (int i = 0; i < 3; i++) {
      call(Operation.ALL_REDUCE);
    }
    numbers.completed(Operation.ALL_REDUCE, 3);
    numbers.completed(Operation.ALL_REDUCE, 2);
    assertEquals(0, numbers.oldestPending());
  }

  @Test
  void collectiveOfLongAgoIsUnknown() {
    for (int i = 0; i < 5000; i++) {
      call(Operation.ALL_REDUCE);
    }
    assertEquals(1, numbers.oldestPending());
    assertNull(numbers.operation(1));
    assertEquals(Operation.ALL_REDUCE, numbers.operation(905));
    assertEquals(new CallCount(905, 4095, 0), numbers.calls(905));
    assertNull(numbers.operation(904));
    assertEquals(CallCount.UNKNOWN, numbers.calls(904));
  }
}
