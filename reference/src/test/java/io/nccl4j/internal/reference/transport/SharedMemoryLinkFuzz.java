package io.nccl4j.internal.reference.transport;

import io.nccl4j.NcclSystemException;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Sample;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/** Fuzzes the file of a shared-memory link, as written by the other end. */
public final class SharedMemoryLinkFuzz implements FuzzTarget {
  private static final int SLOTS = 2;
  private static final int SLOT_BYTES = 64;
  private static final int FROM = 3;
  private static final int TO = 5;

  private final Path folder;

  public SharedMemoryLinkFuzz() throws IOException {
    folder = Files.createTempDirectory("nccl4j-fuzz");
  }

  @Override
  public List<Sample> samples() throws IOException {
    try (Arena arena = Arena.ofConfined()) {
      SharedMemoryLink link = SharedMemoryLink.create(folder, arena, SLOTS, SLOT_BYTES, FROM, TO);
      Sample empty = sample(link);
      link.send(arena.allocate(SLOT_BYTES), 0, SLOT_BYTES, 42);
      Sample one = sample(link);
      link.send(arena.allocate(SLOT_BYTES), 0, 1, 43);
      Sample full = sample(link);
      link.discard();
      return List.of(empty, one, full);
    }
  }

  /** Magic number, size, slots, slot size, from, to, opened; released; number, size, signature. */
  private static Sample sample(SharedMemoryLink link) throws IOException {
    int[] widths = {8, 8, 4, 4, 4, 4, 8, 88, 8, 120, 8, 8, 8, 40, 64, 8, 8, 8, 40};
    return Sample.of(Files.readAllBytes(link.path()), widths);
  }

  @Override
  public void read(byte[] input) throws IOException {
    Path file = folder.resolve("link");
    Files.write(file, input);
    try (Arena arena = Arena.ofConfined()) {
      SharedMemoryLink in = SharedMemoryLink.open(file, arena, FROM, TO, TO);
      for (int left = 2 * SLOTS; left > 0 && in.ready(); left--) {
        long size = in.memory().byteSize();
        if (in.bytes() < 0 || in.offset() < 0 || in.offset() + in.bytes() > size) {
          throw new AssertionError(in.bytes() + " bytes at " + in.offset() + " of " + size);
        }
        in.memory().asSlice(in.offset(), in.bytes()).fill((byte) in.signature());
        in.release();
      }
      Files.write(file, Arrays.copyOf(input, input.length));
      send(SharedMemoryLink.open(file, arena, FROM, TO, FROM), arena);
    } finally {
      Files.deleteIfExists(file);
    }
  }

  /** Sends over the file: its writer may also be the receiver, which counts released slices. */
  private static void send(SharedMemoryLink out, Arena arena) {
    for (int left = 2 * SLOTS; left > 0 && out.hasRoom(); left--) {
      out.send(arena.allocate(1), 0, 1, left);
    }
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(ProtocolViolationException.class, NcclSystemException.class);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 17) + 4L * inputBytes;
  }

  @Override
  public void close() throws IOException {
    Files.delete(folder);
  }
}
