package io.nccl4j.internal.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.internal.auth.SharedSecret;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestFactory;

/**
 * Fuzzes the parsers of the exchange with mutated messages; scripts/lib/fuzz runs the same targets
 * longer.
 */
@Tag("slow")
class RendezvousFuzzTest {
  static final SharedSecret SECRET = secret("the secret of the fuzzed run");

  static SharedSecret secret(String text) {
    return new SharedSecret(text.getBytes(StandardCharsets.US_ASCII));
  }

  @TestFactory
  Stream<DynamicTest> parserEndsAsDocumented() {
    Map<String, Callable<FuzzTarget>> targets = new LinkedHashMap<>();
    targets.put("rendezvous-server", StoreServerFuzz::new);
    targets.put("rendezvous-client", StoreClientFuzz::new);
    targets.put("rendezvous-values", StoreValuesFuzz::new);
    targets.put("torch-store", TorchStoreFuzz::new);
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
