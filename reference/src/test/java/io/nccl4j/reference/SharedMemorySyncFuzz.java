package io.nccl4j.reference;

import io.nccl4j.NcclSystemException;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.reference.transport.ProtocolViolationException;
import io.nccl4j.internal.reference.transport.SharedMemorySync;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/** Fuzzes the file of the shared sync object, which the process of rank 0 creates. */
final class SharedMemorySyncFuzz implements FuzzTarget {
  private static final int RANKS = 2;
  // The header is followed by the ranks' data and counts, for which any value is valid.
  private static final int HEADER_BYTES = 256;

  private final Path folder;
  private int size;

  SharedMemorySyncFuzz() throws IOException {
    folder = Files.createTempDirectory("nccl4j-fuzz");
  }

  @Override
  public List<Sample> samples() throws IOException {
    try (Arena arena = Arena.ofConfined()) {
      SharedMemorySync sync = SharedMemorySync.create(RANKS, 2, arena);
      byte[] whole = Files.readAllBytes(sync.path());
      sync.discard();
      size = whole.length;
      return List.of(Sample.of(Arrays.copyOf(whole, HEADER_BYTES), 8, 4, 4, 8, 8, 8, 88, 8));
    }
  }

  @Override
  public void read(byte[] input) throws IOException {
    Path file = folder.resolve("board");
    boolean padded = Fuzzer.random(input).nextInt(4) != 0;
    Files.write(file, padded ? Arrays.copyOf(input, size) : input);
    try (Arena arena = Arena.ofConfined()) {
      SharedMemorySync sync = SharedMemorySync.open(file, RANKS, 2, 0, arena);
      for (int rank = 0; rank < RANKS; rank++) {
        sync.put(rank, sync.put(rank) + sync.folded(rank) + sync.taken(rank));
        sync.sign(rank, 1, sync.signature(rank, 0));
        sync.memory()
            .asSlice(sync.result(rank, 1), SharedMemorySync.partBytes(RANKS))
            .fill((byte) 1);
      }
    } finally {
      Files.deleteIfExists(file);
    }
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(ProtocolViolationException.class, NcclSystemException.class);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 20) + 4L * inputBytes;
  }

  @Override
  public void close() throws IOException {
    Files.delete(folder);
  }
}
