package io.nccl4j.reference;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.internal.reference.transport.SharedMemoryLinkFuzz;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestFactory;

/**
 * Fuzzes the parsers of the reference backend, for messages and shared memory of other processes;
 * {@code scripts/lib/fuzz} runs them for longer.
 */
@Tag("slow")
class ReferenceFuzzTest {
  @TestFactory
  Stream<DynamicTest> parserEndsAsDocumented() {
    Map<String, Callable<FuzzTarget>> targets = new LinkedHashMap<>();
    targets.put("unique-id", UniqueIdFuzz::new);
    targets.put("message-bodies", MessageBodiesFuzz::new);
    targets.put("control", ControlFuzz::new);
    targets.put("endpoint", EndpointFuzz::new);
    targets.put("coordinator", CoordinatorFuzz::new);
    targets.put("join", JoinFuzz::new);
    targets.put("tcp-frames", TcpFramesFuzz::new);
    targets.put("shared-memory-link", SharedMemoryLinkFuzz::new);
    return targets.entrySet().stream()
        .filter(target -> Fuzzer.selected(target.getKey()))
        .map(
            target ->
                DynamicTest.dynamicTest(
                    target.getKey(), () -> Fuzzer.run(target.getKey(), target.getValue())));
  }
}
