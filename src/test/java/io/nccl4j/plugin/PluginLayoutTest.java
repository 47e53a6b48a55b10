package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Compares the layouts of NCCL's plugin interfaces with its headers, which its packages lack: reads
 * descriptors that C++ has filled. {@code NCCL_SOURCE} names a source tree of NCCL 2.29.2 or later.
 */
class PluginLayoutTest {
  private static final String SOURCE =
      """
      #include <cstddef>
      #include "nccl.h"
      #include "nccl_common.h"
      #include "plugin/nccl_env.h"
      #include "plugin/nccl_profiler.h"
      #include "plugin/nccl_tuner.h"
      #define AT(type, field, offset) static_assert(offsetof(type, field) == offset)
      AT(ncclEnv_v1_t, init, 8); AT(ncclEnv_v1_t, finalize, 16); AT(ncclEnv_v1_t, getEnv, 24);
      AT(ncclProfiler_v6_t, init, 8); AT(ncclProfiler_v6_t, startEvent, 16);
      AT(ncclProfiler_v6_t, stopEvent, 24); AT(ncclProfiler_v6_t, recordEventState, 32);
      AT(ncclProfiler_v6_t, finalize, 40); AT(ncclProfilerEventStateArgs_v6_t, kernelCh.pTimer, 0);
      AT(ncclTuner_v5_t, init, 8); AT(ncclTuner_v5_t, getCollInfo, 16);
      AT(ncclTuner_v5_t, finalize, 24);
      static_assert(sizeof(ncclProfilerEventDescr_v6_t) == 112 && ncclProfilerKernelChStop == 22);
      static ncclProfilerEventDescr_v6_t descriptor(int type, long parent) {
        ncclProfilerEventDescr_v6_t d = {};
        d.type = type;
        d.parentObj = (void*)parent;
        return d;
      }
      extern "C" {
      ncclProfilerEventDescr_v6_t collective = [] {
        auto d = descriptor(ncclProfileColl, 1);
        d.coll = {2, "AllReduce", (void*)3, (void*)4, 5, 6, "ncclInt8", 7, 8, "RING", "LL", (void*)9};
        return d;
      }();
      ncclProfilerEventDescr_v6_t message = [] {
        auto d = descriptor(ncclProfileP2p, 1);
        d.p2p = {"Send", (void*)2, "ncclInt8", 3, 4, 5, (void*)6};
        return d;
      }();
      ncclProfilerEventDescr_v6_t kernel = [] {
        auto d = descriptor(ncclProfileKernelCh, 1);
        d.kernelCh = {2, 3};
        return d;
      }();
      ncclProfilerEventDescr_v6_t collectiveCall = [] {
        auto d = descriptor(ncclProfileCollApi, 0);
        d.collApi = {"Reduce", 2, "ncclInt8", 3, (void*)4, true};
        return d;
      }();
      ncclProfilerEventDescr_v6_t messageCall = [] {
        auto d = descriptor(ncclProfileP2pApi, 0);
        d.p2pApi = {"Recv", 2, "ncclInt8", (void*)3, true};
        return d;
      }();
      }
      """;

  @TempDir private Path directory;

  @Test
  @SuppressWarnings("restricted") // The library was built here.
  void descriptorsOfTheHeadersAreRead() throws Exception {
    String source = System.getenv("NCCL_SOURCE");
    assumeTrue(source != null, "NCCL_SOURCE does not name a checkout of NCCL");
    SymbolLookup library = SymbolLookup.libraryLookup(build(Path.of(source)), Arena.global());
    assertEquals(
        new ProfilerEvent.Collective(
            11, 0, 1, 12, 13, 2, "AllReduce", 3, 4, 5, "ncclInt8", 6, "RING", "LL", 7, 8),
        read(library, "collective"));
    assertEquals(
        new ProfilerEvent.PointToPoint(11, 0, 1, 12, 13, "Send", 2, 3, "ncclInt8", 4, 5),
        read(library, "message"));
    assertEquals(new ProfilerEvent.KernelStarted(11, 0, 1, 2, 3), read(library, "kernel"));
    assertEquals(
        new ProfilerEvent.Called(11, 0, 12, 13, "Reduce", 2, "ncclInt8", 3, 4, true),
        read(library, "collectiveCall"));
    assertEquals(
        new ProfilerEvent.Called(11, 0, 12, 13, "Recv", 2, "ncclInt8", -1, 3, true),
        read(library, "messageCall"));
  }

  @SuppressWarnings("restricted")
  private static ProfilerEvent read(SymbolLookup library, String symbol) {
    MemorySegment descriptor =
        library.findOrThrow(symbol).reinterpret(ProfilerPlugin.DESCRIPTOR_BYTES);
    return assertInstanceOf(
        ProfilerEvent.class,
        ProfilerPlugin.event(11, 0, new ProfilerPlugin.Rank(12, 13), descriptor));
  }

  private Path build(Path nccl) throws Exception {
    Path source = Files.writeString(directory.resolve("layout.cc"), SOURCE);
    Path library = directory.resolve("layout.so");
    Path nvidia = Checkout.ROOT.resolve("target/native/nvidia");
    FinishedProgram compiler =
        FinishedProgram.run(
            Map.of(),
            List.of(
                "g++",
                "-std=c++17",
                "-shared",
                "-fPIC",
                "-DNCCL_OS_LINUX",
                "-I" + nccl.resolve("src/include"),
                "-I" + nccl.resolve("src/include/plugin"),
                "-isystem" + nvidia.resolve("nccl/include"),
                "-isystem" + nvidia.resolve("cu13/include"),
                "-isystem" + nvidia.resolve("cu13/include/cccl"),
                source.toString(),
                "-o",
                library.toString()));
    assertEquals(0, compiler.status(), compiler::output);
    return library;
  }
}
