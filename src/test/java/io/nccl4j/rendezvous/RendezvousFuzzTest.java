package io.nccl4j.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestFactory;

/**
 * Fuzzes the parsers of the exchange protocols with mutated messages; scripts/lib/fuzz runs the
 * same targets longer.
 */
@Tag("slow")
class RendezvousFuzzTest {
  static final Secret SECRET = Secret.of("the secret of the fuzzed run");

  @TestFactory
  Stream<DynamicTest> parserEndsAsDocumented() {
    Map<String, Callable<FuzzTarget>> targets = new LinkedHashMap<>();
    targets.put("rendezvous-server", IdServerFuzz::new);
    targets.put("rendezvous-client", IdClientFuzz::new);
    targets.put("torch-store-rank-0", () -> new TorchStoreFuzz(0));
    targets.put("torch-store-rank-1", () -> new TorchStoreFuzz(1));
    targets.put("round-files", RoundDirectoryFuzz::new);
    targets.put("gather", GatherFuzz::new);
    return targets.entrySet().stream()
        .filter(target -> Fuzzer.selected(target.getKey()))
        .map(
            target ->
                DynamicTest.dynamicTest(
                    target.getKey(), () -> Fuzzer.run(target.getKey(), target.getValue())));
  }

  /** Returns an id that no backend has created. */
  static UniqueId id() {
    byte[] bytes = new byte[UniqueId.BYTES];
    bytes[0] = 1;
    return UniqueId.of(bytes);
  }
}
