package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.ChildJvm;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests that calls succeed after earlier ones failed with a stack overflow. */
@OnStandIn
class StackOverflowTest {
  @ParameterizedTest
  @ValueSource(strings = {"nccl", "reference"})
  void callsSucceedAfterStackOverflows(String backend) throws Exception {
    List<String> lines = ChildJvm.run(DeepCalls.class, List.of(), backend).lines().toList();
    int calls = lines.size() - 2;
    assertEquals(18, calls, lines::toString);
    for (String line : lines.subList(0, calls)) {
      assertTrue(line.endsWith(": ok"), line);
    }
    assertEquals(List.of("sums [1, 2, 3, 4]", "closed"), lines.subList(calls, lines.size()));
  }
}
