package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.libraries.Driver;
import io.nccl4j.fixtures.libraries.OnRealLibraries;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.nccl.NcclParameters;
import io.nccl4j.nccl.VersionReport;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** Tests parameters and versions, which NVIDIA's libraries report without a GPU. */
@OnRealLibraries
class ParametersTest {
  private final NcclParameters parameters = NcclParameters.load();

  @Test
  void documentedParametersAreListed() {
    assertEquals(
        List.of(
            "NCCL_DEBUG",
            "NCCL_DEBUG_FILE",
            "NCCL_DEBUG_SUBSYS",
            "NCCL_DEBUG_TIMESTAMP_FORMAT",
            "NCCL_DEBUG_TIMESTAMP_LEVELS",
            "NCCL_SET_THREAD_NAME"),
        parameters.keys());
    for (String key : parameters.keys()) {
      assertTrue(parameters.bytes(key).length > 0, key);
    }
  }

  @Test
  void eachParameterIsReadAsItsType() {
    assumeTrue(System.getenv("NCCL_DEBUG_SUBSYS") == null, "NCCL_DEBUG_SUBSYS is set");
    assumeTrue(System.getenv("NCCL_DEBUG_TIMESTAMP_FORMAT") == null, "the format is set");
    assertEquals("INIT,ENV,BOOTSTRAP", parameters.text("NCCL_DEBUG_SUBSYS"));
    assertEquals("4225", parameters.uint64("NCCL_DEBUG_SUBSYS").toString());
    assertEquals(4, parameters.uint32("NCCL_DEBUG_TIMESTAMP_LEVELS"));
    assertEquals("[%F %T] ", parameters.string("NCCL_DEBUG_TIMESTAMP_FORMAT"));
    assertArrayEquals(
        "[%F %T] \0".getBytes(StandardCharsets.US_ASCII),
        parameters.bytes("NCCL_DEBUG_TIMESTAMP_FORMAT"));
    assertThrows(IllegalArgumentException.class, () -> parameters.uint32("NCCL_DEBUG_SUBSYS"));
    assertThrows(IllegalArgumentException.class, () -> parameters.int64("NCCL_DEBUG_SUBSYS"));
    assertThrows(IllegalArgumentException.class, () -> parameters.string("NCCL_DEBUG"));
  }

  @Test
  void unknownParameterIsNamed() {
    IllegalArgumentException missing =
        assertThrows(IllegalArgumentException.class, () -> parameters.text("NCCL_DEBUGG"));
    assertTrue(missing.getMessage().startsWith("key is NCCL_DEBUGG;"), missing::toString);
  }

  @Test
  void trap16ParameterKeepsTheValueThatNcclRead() throws Throwable {
    assumeTrue(System.getenv("NCCL_SET_THREAD_NAME") == null, "NCCL_SET_THREAD_NAME is set");
    assertEquals("FALSE", parameters.text("NCCL_SET_THREAD_NAME"));
    setEnvironment("NCCL_SET_THREAD_NAME", "1");
    try {
      assertEquals("FALSE", parameters.text("NCCL_SET_THREAD_NAME"), "NCCL read it earlier");
      assertArrayEquals(new byte[] {0}, parameters.bytes("NCCL_SET_THREAD_NAME"));
    } finally {
      setEnvironment("NCCL_SET_THREAD_NAME", "0");
    }
  }

  @SuppressWarnings("restricted") // Java cannot change its own environment; C code can.
  private static void setEnvironment(String name, String value) throws Throwable {
    Linker linker = Linker.nativeLinker();
    try (Arena arena = Arena.ofConfined()) {
      int result =
          (int)
              linker
                  .downcallHandle(
                      linker.defaultLookup().findOrThrow("setenv"),
                      FunctionDescriptor.of(
                          ValueLayout.JAVA_INT,
                          ValueLayout.ADDRESS,
                          ValueLayout.ADDRESS,
                          ValueLayout.JAVA_INT))
                  .invokeExact(arena.allocateFrom(name), arena.allocateFrom(value), 1);
      assertEquals(0, result);
    }
  }

  @Test
  void versionsAreReportedWithoutGpu() throws Exception {
    VersionReport report = VersionReport.load();
    assertEquals("2.30.7", report.headers());
    assertEquals("2.30.7", report.nccl());
    assertEquals(Requirement.library("nccl").toRealPath(), report.ncclLibrary());
    assertEquals("13.0", report.cudaRuntime());
    assertEquals(Requirement.library("cudart").toRealPath(), report.cudaRuntimeLibrary());
    assertEquals(io.nccl4j.Backend.libraryVersion(), report.nccl4j());
    assumeFalse(Driver.present(), "there is a driver");
    assertEquals(Optional.empty(), report.driver());
  }
}
