package io.nccl4j.tools.doctor;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.nccl.VersionReport;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;

/**
 * A program that loads the libraries, lists the devices and runs a small all-reduce of one rank on
 * the first device. It records its progress in a {@link ProgressLog}.
 */
public final class AllReduceProbe {
  static final int COUNT = 1_000;

  private final ProgressLog log;
  private final Duration timeout;

  private AllReduceProbe(ProgressLog log, Duration timeout) {
    this.log = log;
    this.timeout = timeout;
  }

  /** Runs the probe. The arguments are the log file and the timeout of a wait in milliseconds. */
  public static void main(String[] args) throws IOException {
    ProgressLog log = new ProgressLog(Path.of(args[0]));
    AllReduceProbe probe = new AllReduceProbe(log, Duration.ofMillis(Long.parseLong(args[1])));
    try {
      probe.run();
    } catch (LibraryNotFoundException e) {
      probe.missing(e);
    } catch (CudaException e) {
      log.write(ProgressLog.CUDA_FAILURE, e.function(), e.errorName(), e.getMessage());
    } catch (IllegalCallerException e) {
      log.write(ProgressLog.REFUSED, e.getMessage());
    } catch (RuntimeException e) {
      log.write(ProgressLog.FAILURE, e.getMessage() == null ? e.toString() : e.getMessage());
    }
    probe.mapped();
    // halt() ends the process even if threads of NCCL hang.
    Runtime.getRuntime().halt(0);
  }

  private void missing(LibraryNotFoundException e) {
    log.write(ProgressLog.MISSING, e.library(), e.getMessage().lines().findFirst().orElse(""));
    for (LibraryNotFoundException.Attempt attempt : e.attempts()) {
      log.write(ProgressLog.ATTEMPT, attempt);
    }
  }

  private void run() {
    log.write(ProgressLog.STEP, "loading libcudart");
    log.write(ProgressLog.DRIVER, CudaDevices.driverVersion());
    log.write(ProgressLog.STEP, "loading libnccl");
    long start = System.nanoTime();
    boolean loaded = load();
    log.write(ProgressLog.STEP, "looking for devices");
    for (Device device : CudaDevices.list()) {
      int capability = CudaDevices.computeCapability(device.index());
      log.write(ProgressLog.DEVICE, device.index(), device.name(), capability);
    }
    if (loaded) {
      allReduce(start);
    }
  }

  /** Loads libnccl; returns false, so that devices are still listed, if it was not found. */
  private boolean load() {
    try {
      VersionReport report = VersionReport.load();
      log.write(ProgressLog.VERSION, ProbeResult.NCCL, report.nccl());
      log.write(ProgressLog.VERSION, ProbeResult.NCCL_LIBRARY, report.ncclLibrary());
      log.write(ProgressLog.VERSION, ProbeResult.RUNTIME, report.cudaRuntime());
      return true;
    } catch (LibraryNotFoundException e) {
      missing(e);
      return false;
    }
  }

  private void allReduce(long start) {
    log.write(ProgressLog.STEP, "creating a communicator of one rank");
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(timeout).withDevice(0);
    try (Arena arena = Arena.ofConfined();
        Backend backend = Backend.nccl();
        Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, config);
        Stream stream = comm.newStream();
        Buffer send = comm.newBuffer(DataType.FLOAT32, COUNT);
        Buffer recv = comm.newBuffer(DataType.FLOAT32, COUNT)) {
      log.write(ProgressLog.STEP, "copying to the device");
      send.copyFromAsync(numbers(arena, 1), stream);
      // Wrong initial values everywhere, to detect an all-reduce that does nothing.
      recv.copyFromAsync(numbers(arena, -1), stream);
      log.write(ProgressLog.STEP, "running the all-reduce");
      comm.allReduce(send, recv, ReduceOp.SUM, stream);
      MemorySegment sums = arena.allocate(ValueLayout.JAVA_FLOAT, COUNT);
      recv.copyTo(sums, stream);
      stream.synchronize();
      verify(sums, start);
      log.write(ProgressLog.STEP, "closing the communicator");
    }
    log.write(ProgressLog.STEP, "done");
  }

  private static MemorySegment numbers(Arena arena, int sign) {
    MemorySegment numbers = arena.allocate(ValueLayout.JAVA_FLOAT, COUNT);
    for (int i = 0; i < COUNT; i++) {
      numbers.setAtIndex(ValueLayout.JAVA_FLOAT, i, sign * (i + 1f));
    }
    return numbers;
  }

  private void verify(MemorySegment sums, long start) {
    for (int i = 0; i < COUNT; i++) {
      float sum = sums.getAtIndex(ValueLayout.JAVA_FLOAT, i);
      if (sum != i + 1f) {
        log.write(ProgressLog.WRONG, "element " + i + " is " + sum + ", not " + (i + 1f));
        return;
      }
    }
    log.write(ProgressLog.RIGHT, COUNT, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start));
  }

  private void mapped() throws IOException {
    TreeSet<String> files = new TreeSet<>();
    // Not readAllLines: a mapped path need not be UTF-8.
    byte[] maps = Files.readAllBytes(Path.of("/proc/self/maps"));
    for (String line : new String(maps, StandardCharsets.UTF_8).lines().toList()) {
      int slash = line.indexOf('/');
      if (slash >= 0) {
        files.add(line.substring(slash));
      }
    }
    for (String file : files) {
      for (NativeLibrary library : MachineState.LIBRARIES) {
        if (file.substring(file.lastIndexOf('/') + 1).startsWith("lib" + library.label() + ".so")) {
          log.write(ProgressLog.MAPPED, library.label(), file);
        }
      }
    }
  }
}
