package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** Fuzzes the parser of unique ids: bytes or hexadecimal digits. */
final class UniqueIdFuzz implements FuzzTarget {
  private final Backend backend =
      ReferenceBackend.openAsProcesses(1, 2, ReferenceOptions.defaults());

  @Override
  public List<Sample> samples() {
    UniqueId id = backend.newUniqueId();
    return List.of(
        Sample.of(id.toBytes(), 16, 1, 8, 8, 8, 8, 8, 8, 8, 1, 16, 2, 1, 30),
        Sample.text(id.toHex()));
  }

  @Override
  public void read(byte[] input) {
    UniqueId id =
        input.length == UniqueId.BYTES
            ? UniqueId.of(input)
            : UniqueId.fromHex(new String(input, StandardCharsets.UTF_8));
    ReferenceId.of(id);
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(IllegalArgumentException.class);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 16) + 16L * inputBytes;
  }
}
