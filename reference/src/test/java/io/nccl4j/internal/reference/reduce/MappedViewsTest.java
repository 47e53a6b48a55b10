package io.nccl4j.internal.reference.reduce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.reference.Ranks;
import io.nccl4j.reference.ReferenceOptions;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Random;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The views of 1 GiB through which kernels read memory. */
class MappedViewsTest {
  private static final long SEED = Long.getLong("test.seed", 20261121);
  private static final long GIB = 1L << 30;

  @TempDir private Path folder;

  /** Maps a sparse file, whose pages are allocated when they are written. */
  private MemorySegment sparse(Arena arena, String name, long bytes) throws IOException {
    try (FileChannel file =
        FileChannel.open(
            folder.resolve(name),
            StandardOpenOption.CREATE_NEW,
            StandardOpenOption.READ,
            StandardOpenOption.WRITE)) {
      return file.map(FileChannel.MapMode.READ_WRITE, 0, bytes, arena);
    } finally {
      Files.deleteIfExists(folder.resolve(name));
    }
  }

  @ParameterizedTest
  @EnumSource
  void reductionAcrossViewsGivesTheSameBits(DataType type) throws IOException {
    System.out.println("seed " + SEED);
    int ranks = 3;
    // Begins unaligned before the end of the first view, and ends in the second.
    long offset = GIB - 1_500_000L / type.bytes() * type.bytes();
    long count = 3_000_000L / type.bytes();
    try (Arena arena = Arena.ofShared()) {
      MemorySegment[] far = new MemorySegment[ranks];
      MemorySegment[] near = new MemorySegment[ranks];
      MemorySegment[] farOut = new MemorySegment[ranks];
      MemorySegment[] nearOut = new MemorySegment[ranks];
      for (int rank = 0; rank < ranks; rank++) {
        far[rank] = sparse(arena, "in" + rank, GIB + 3_000_000);
        farOut[rank] = sparse(arena, "out" + rank, GIB + 3_000_000);
        near[rank] = arena.allocate(3_000_000, 64);
        nearOut[rank] = arena.allocate(3_000_000, 64);
        Random random = new Random(SEED + rank);
        for (long i = 0; i < count; i++) {
          // No NaN: the bits of a NaN result are unspecified.
          type.set(near[rank], i, random.nextInt(100) / (type.floating() ? 8.0 : 1));
        }
        MemorySegment.copy(near[rank], 0, far[rank], offset, count * type.bytes());
      }
      int[] order = {2, 0, 1, 2, 0, 1};
      long[] factors = new long[ranks];
      Kernel kernel = Kernels.of(type);
      ReductionOp.Kind sum = ReductionOp.Kind.SUM;
      kernel.reduce(sum, near, false, factors, order, 1, nearOut, 0, count, 1);
      kernel.reduce(sum, far, false, factors, order, 1, farOut, offset, count, 1);
      long bytes = count * type.bytes();
      assertEquals(
          -1, nearOut[1].asSlice(0, bytes).mismatch(farOut[1].asSlice(offset, bytes)), "reduced");
      kernel.combine(sum, near[0], 0, false, 0, near[1], 0, nearOut[2], 0, count, 1);
      kernel.combine(sum, far[0], offset, false, 0, far[1], offset, farOut[2], offset, count, 1);
      assertEquals(
          -1, nearOut[2].asSlice(0, bytes).mismatch(farOut[2].asSlice(offset, bytes)), "combined");
    }
  }

  @Test
  void viewIsCreatedOncePerSegment() {
    MappedViews views = MappedViews.ofThread();
    Function<ByteBuffer, FloatBuffer> floats = ByteBuffer::asFloatBuffer;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment one = arena.allocate(64, 64);
      MemorySegment two = arena.allocate(64, 64);
      FloatBuffer view = views.view(one, 0, floats);
      assertSame(view, views.view(one, 32, floats));
      assertNotSame(view, views.view(two, 0, floats));
      MappedViews.forgetOfThread();
      assertNotSame(view, MappedViews.ofThread().view(one, 0, floats));
    }
  }

  @Test
  void closedMemoryIsNotReadThroughAView() {
    Function<ByteBuffer, FloatBuffer> floats = ByteBuffer::asFloatBuffer;
    FloatBuffer view;
    try (Arena arena = Arena.ofShared()) {
      view = MappedViews.ofThread().view(arena.allocate(64, 64), 0, floats);
    }
    assertThrows(IllegalStateException.class, () -> view.get(0));
  }

  @Test
  void idleStreamReleasesMemory() throws Exception {
    Ranks.run(
        2,
        ReferenceOptions.defaults(),
        (comm, stream) -> {
          WeakReference<MemorySegment.Scope> memory = reduced(comm, stream);
          for (int i = 0; i < 200 && memory.get() != null; i++) {
            System.gc();
            Thread.sleep(100);
          }
          assertNull(memory.get(), "the worker still references the memory");
        });
  }

  private static WeakReference<MemorySegment.Scope> reduced(
      io.nccl4j.Communicator comm, io.nccl4j.Stream stream) {
    MemorySegment memory = Arena.ofAuto().allocate(4096, 64);
    try (Buffer data =
        Buffer.ofHostSegment(memory, DataType.FLOAT32, 1024, comm.device(), () -> {})) {
      comm.allReduce(data, data, ReduceOp.SUM, stream);
      stream.synchronize();
    }
    // All slices share the scope, which alone keeps the memory reachable.
    return new WeakReference<>(memory.scope());
  }
}
