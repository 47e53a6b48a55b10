package io.nccl4j.tools.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.FlightRecorder;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class OperationsCheckTest {
  @TempDir private Path dumps;

  @Test
  void rankThatHasNotCalledIsNamed() throws IOException {
    CommunicatorConfig config = CommunicatorConfig.defaults().withName("train");
    try (Backend backend = Backend.reference(2)) {
      List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1}, config);
      Communicator zero = ranks.getFirst();
      try (Stream stream = zero.newStream();
          Buffer value = zero.newBuffer(DataType.FLOAT32, 1)) {
        zero.allReduce(value, value, ReduceOp.SUM, stream);
        FlightRecorder.dump(dumps);
        Communicator.abortAll(ranks);
      }
    }
    Finding finding = OperationsCheck.findings(dumps).getFirst();
    assertEquals(Severity.WARNING, finding.severity());
    assertTrue(finding.title().contains("(train), 2 ranks"), finding::title);
    assertTrue(finding.title().contains("rank 1"), finding::title);
    assertTrue(finding.remedy().endsWith("nccl4j flight " + dumps), finding::remedy);
  }

  @Test
  void folderWithoutDumpsIsReported() {
    List<Finding> findings = OperationsCheck.findings(dumps);
    assertEquals(1, findings.size());
    assertEquals(Severity.UNCHECKED, findings.getFirst().severity());
    String title =
        "the operations of the ranks: no dump of nccl4j's flight recorder is in " + dumps;
    assertEquals(title, findings.getFirst().title());
  }
}
