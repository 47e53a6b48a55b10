package io.nccl4j.tools.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Operation;
import io.nccl4j.tools.cli.BusBandwidth;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

class BusBandwidthTest {
  private static TraceSpan span(Operation operation, long nanos, String error) {
    String name = operation.method();
    long bytes = BusBandwidth.bytes(name, 4000, 4);
    return new TraceSpan(
        new Source("file", 1, "host", "clock"),
        0,
        new TraceSpan.Lane(1, "stream 1"),
        name,
        0,
        1000,
        1000 + nanos,
        new TraceSpan.Moved("c", 1, 0, 4, -1, 0, "FLOAT32", null, bytes, null),
        error);
  }

  @ParameterizedTest
  @CsvSource({
    "ALL_REDUCE, 4000, 6e6",
    "BROADCAST, 4000, 4e6",
    "REDUCE, 4000, 4e6",
    "SEND, 4000, 4e6",
    "RECV, 4000, 4e6",
    "ALL_GATHER, 16000, 12e6",
    "REDUCE_SCATTER, 16000, 12e6",
    "ALL_TO_ALL, 16000, 12e6",
    "GATHER, 16000, 12e6",
    "SCATTER, 16000, 12e6",
  })
  void bandwidthMatchesNcclTests(Operation operation, long bytes, double busbw) {
    TraceSpan span = span(operation, 1_000_000, null);
    assertEquals(bytes, span.operation().bytes());
    assertEquals(busbw, span.busBandwidth(), 1e-3);
  }

  @ParameterizedTest
  @EnumSource(Operation.class)
  void failedOrEmptyOperationHasNone(Operation operation) {
    assertEquals(0, span(operation, 1_000_000, "aborted").busBandwidth());
    assertEquals(0, span(operation, 0, null).busBandwidth());
  }
}
