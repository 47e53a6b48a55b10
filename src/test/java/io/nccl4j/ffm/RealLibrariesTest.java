package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.bindings.nccl.ncclConfig_t;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.fixtures.libraries.Driver;
import io.nccl4j.fixtures.libraries.OnRealLibraries;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.function.IntSupplier;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Calls NVIDIA's libraries through the bindings on a machine without a driver: the functions that
 * work without one, and the result codes of those that do not.
 */
@OnRealLibraries
class RealLibrariesTest {
  private static final MemorySegment NULL = MemorySegment.NULL;

  @BeforeAll
  static void load() {
    NativeLibrary.NCCL.load();
    NativeLibrary.CUDART.load();
  }

  @Test
  void namedLibrariesAreLoaded() throws Exception {
    assertEquals(Requirement.library("nccl").toRealPath(), NativeLibrary.NCCL.load().path());
    assertEquals(23007, NativeLibrary.NCCL.load().version());
    assertEquals(Requirement.library("cudart").toRealPath(), NativeLibrary.CUDART.load().path());
    assertEquals(13000, NativeLibrary.CUDART.load().version());
  }

  @Test
  void versionMatchesTheHeader() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment version = arena.allocate(ValueLayout.JAVA_INT);
      assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclGetVersion(version));
      assertEquals(nccl_h.NCCL_VERSION_CODE(), version.get(ValueLayout.JAVA_INT, 0));
    }
  }

  @Test
  void everyResultHasErrorText() {
    assertEquals("no error", errorString(nccl_h.ncclSuccess()));
    assertEquals("unhandled cuda error (run with NCCL_DEBUG=INFO for details)", errorString(1));
    assertEquals("unhandled system error (run with NCCL_DEBUG=INFO for details)", errorString(2));
    assertEquals(
        "internal error - please report this issue to the NCCL developers", errorString(3));
    for (int code = 4; code < nccl_h.ncclNumResults(); code++) {
      assertFalse(errorString(code).isBlank());
      assertNotEquals("unknown result code", errorString(code));
    }
    assertEquals("unknown result code", errorString(99));
  }

  private static String errorString(int code) {
    return text(nccl_h.ncclGetErrorString(code));
  }

  @Test
  void failureSetsTheLastError() {
    assertEquals(nccl_h.ncclInvalidArgument(), nccl_h.ncclGetUniqueId(NULL));
    assertTrue(text(nccl_h.ncclGetLastError(NULL)).contains("GetUniqueId"));
  }

  @Test
  void logReachesLog4jAtItsLevels(@TempDir Path temp) throws Exception {
    List<String> lines =
        LoggedCalls.run(temp, Map.of("NCCL_DEBUG", "INFO"), "-Dio.nccl4j.nccl.log=true");
    String logger = " io\\.nccl4j\\.nccl\\.log: .*";
    assertTrue(
        lines.stream().anyMatch(line -> line.matches("INFO" + logger + " NCCL INFO .*")),
        lines::toString);
    assertTrue(
        lines.stream()
            .anyMatch(
                line ->
                    line.matches(
                        "WARN" + logger + " NCCL WARN GetUniqueId : out argument is NULL")),
        lines::toString);
  }

  @Test
  void uniqueIdsHave128BytesAndDiffer() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment first = ncclUniqueId.allocate(arena);
      MemorySegment second = ncclUniqueId.allocate(arena);
      assertEquals(128, first.byteSize());
      assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclGetUniqueId(first));
      assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclGetUniqueId(second));
      assertNotEquals(-1, first.mismatch(second));
    }
  }

  @Test
  void emptyGroupSucceedsAndUnmatchedEndIsInvalidUsage() throws Exception {
    inNewThread(
        () -> {
          assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclGroupStart());
          assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclGroupStart());
          assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclGroupEnd());
          assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclGroupEnd());
          assertEquals(nccl_h.ncclInvalidUsage(), nccl_h.ncclGroupEnd());
        });
  }

  @Test
  void nullCommunicatorIsInvalidArgument() throws Exception {
    try (Arena arena = Arena.ofShared()) {
      MemorySegment out = arena.allocate(8);
      IntSupplier[] calls = {
        () -> nccl_h.ncclCommCount(NULL, out),
        () -> nccl_h.ncclCommUserRank(NULL, out),
        () -> nccl_h.ncclCommCuDevice(NULL, out),
        () -> nccl_h.ncclCommGetAsyncError(NULL, out),
        () -> nccl_h.ncclAllReduce(out, out, 1, 0, 0, NULL, NULL),
        () -> nccl_h.ncclBroadcast(out, out, 1, 0, 0, NULL, NULL),
        () -> nccl_h.ncclReduce(out, out, 1, 0, 0, 0, NULL, NULL),
        () -> nccl_h.ncclAllGather(out, out, 1, 0, NULL, NULL),
        () -> nccl_h.ncclReduceScatter(out, out, 1, 0, 0, NULL, NULL),
        () -> nccl_h.ncclAlltoAll(out, out, 1, 0, NULL, NULL),
        () -> nccl_h.ncclGather(out, out, 1, 0, 0, NULL, NULL),
        () -> nccl_h.ncclScatter(out, out, 1, 0, 0, NULL, NULL),
        () -> nccl_h.ncclSend(out, 1, 0, 0, NULL, NULL),
        () -> nccl_h.ncclRecv(out, 1, 0, 0, NULL, NULL),
      };
      for (int i = 0; i < calls.length; i++) {
        int call = i;
        inNewThread(
            () ->
                assertEquals(nccl_h.ncclInvalidArgument(), calls[call].getAsInt(), "call " + call));
      }
    }
  }

  @Test
  void destroyOfNullCommunicatorSucceeds() {
    assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclCommDestroy(NULL));
    assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclCommAbort(NULL));
    assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclCommFinalize(NULL));
    assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclCommRevoke(NULL, nccl_h.NCCL_REVOKE_DEFAULT()));
  }

  @Test
  void initWithoutDriverIsUnhandledCudaError() throws Exception {
    assumeFalse(Driver.present(), "there is a driver");
    inNewThread(
        () -> {
          try (Arena arena = Arena.ofConfined()) {
            MemorySegment id = ncclUniqueId.allocate(arena);
            MemorySegment comm = arena.allocate(ValueLayout.ADDRESS);
            assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclGetUniqueId(id));
            assertEquals(nccl_h.ncclUnhandledCudaError(), nccl_h.ncclCommInitRank(comm, 1, id, 0));
          }
        });
    inNewThread(
        () -> {
          try (Arena arena = Arena.ofConfined()) {
            MemorySegment comm = arena.allocate(ValueLayout.ADDRESS);
            assertEquals(nccl_h.ncclUnhandledCudaError(), nccl_h.ncclCommInitAll(comm, 1, NULL));
          }
        });
  }

  @Test
  void failedInitLeavesItsThreadInGroup() throws Exception {
    assumeFalse(Driver.present(), "there is a driver");
    inNewThread(
        () -> {
          try (Arena arena = Arena.ofConfined()) {
            MemorySegment id = ncclUniqueId.allocate(arena);
            MemorySegment comm = arena.allocate(ValueLayout.ADDRESS);
            MemorySegment config = configuration(arena);
            assertEquals(nccl_h.ncclSuccess(), nccl_h.ncclGetUniqueId(id));
            assertEquals(
                nccl_h.ncclUnhandledCudaError(),
                nccl_h.ncclCommInitRankConfig(comm, 1, id, 0, config));
            // If the group were closed, this would be an invalid usage. nccl4j creates
            // communicators on separate threads to shield its callers from this.
            assertNotEquals(nccl_h.ncclInvalidUsage(), nccl_h.ncclGroupEnd());
          }
        });
  }

  private static MemorySegment configuration(Arena arena) {
    MemorySegment config = ncclConfig_t.allocate(arena);
    config.fill((byte) 0);
    for (long offset = 16; offset < config.byteSize(); offset += 4) {
      config.set(ValueLayout.JAVA_INT, offset, Integer.MIN_VALUE);
    }
    ncclConfig_t.netName(config, NULL);
    ncclConfig_t.commName(config, NULL);
    ncclConfig_t.size(config, config.byteSize());
    ncclConfig_t.magic(config, 0xcafebeef);
    ncclConfig_t.version(config, nccl_h.NCCL_VERSION_CODE());
    return config;
  }

  @Test
  void cudaRuntimeReportsVersionAndErrors() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment version = arena.allocate(ValueLayout.JAVA_INT);
      assertEquals(cudart_h.cudaSuccess(), cudart_h.cudaRuntimeGetVersion(version));
      assertEquals(cudart_h.CUDART_VERSION(), version.get(ValueLayout.JAVA_INT, 0));
    }
    assertEquals("cudaSuccess", text(cudart_h.cudaGetErrorName(0)));
    assertEquals("cudaErrorMemoryAllocation", text(cudart_h.cudaGetErrorName(2)));
    assertEquals("out of memory", text(cudart_h.cudaGetErrorString(2)));
  }

  @Test
  void cudaRuntimeWithoutDriverReportsInsufficientDriver() {
    assumeFalse(Driver.present(), "there is a driver");
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment count = arena.allocate(ValueLayout.JAVA_INT);
      assertEquals(
          "cudaErrorInsufficientDriver",
          text(cudart_h.cudaGetErrorName(cudart_h.cudaGetDeviceCount(count))));
      assertEquals(cudart_h.cudaSuccess(), cudart_h.cudaDriverGetVersion(count));
      assertEquals(0, count.get(ValueLayout.JAVA_INT, 0));
    }
  }

  /** Returns a C string in memory owned by the library. */
  @SuppressWarnings("restricted")
  private static String text(MemorySegment string) {
    return string.reinterpret(4096).getString(0);
  }

  private interface Body {
    void run() throws Exception;
  }

  /** Runs in a new thread, because failures change NCCL's group depth, which is per thread. */
  private static void inNewThread(Body body) throws Exception {
    Throwable[] failure = new Throwable[1];
    Thread thread =
        Thread.ofPlatform()
            .start(
                () -> {
                  try {
                    body.run();
                  } catch (Throwable e) {
                    failure[0] = e;
                  }
                });
    thread.join();
    if (failure[0] != null) {
      throw new AssertionError(failure[0].getMessage(), failure[0]);
    }
  }
}
