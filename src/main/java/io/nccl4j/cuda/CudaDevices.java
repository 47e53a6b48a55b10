package io.nccl4j.cuda;

import io.nccl4j.CudaException;
import io.nccl4j.Device;
import io.nccl4j.bindings.cudart.cudaDeviceProp;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.cuda.CudaResults;
import io.nccl4j.internal.cuda.CurrentDevice;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.NullMarked;

/** The CUDA devices that are visible to this process, and the current device. Thread-safe. */
@NullMarked
public final class CudaDevices {
  // Larger than cudaDeviceProp in any release; the offsets of the fields read here have not changed
  // since CUDA 11.
  private static final long PROPERTIES_BYTES = 4096;
  private static final int PCI_BUS_ID_BYTES = 32;

  private CudaDevices() {}

  /**
   * {@return the number of devices} C: {@code cudaGetDeviceCount}.
   *
   * @throws io.nccl4j.LibraryNotFoundException if {@code libcudart} cannot be loaded
   * @throws CudaException if there is no driver or no device, or they do not work
   */
  public static int count() {
    return CurrentDevice.count();
  }

  /**
   * {@return the devices, in the order of their indices} C: {@code cudaGetDeviceProperties}, {@code
   * cudaDeviceGetPCIBusId}.
   *
   * @throws CudaException if there is no driver or no device, or they do not work
   * @throws io.nccl4j.LibraryNotFoundException if {@code libcudart} cannot be loaded
   */
  public static List<Device> list() {
    int count = count();
    List<Device> devices = new ArrayList<>();
    for (int device = 0; device < count; device++) {
      devices.add(describe(device));
    }
    return List.copyOf(devices);
  }

  private static Device describe(int device) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment properties =
          arena.allocate(PROPERTIES_BYTES, cudaDeviceProp.layout().byteAlignment());
      CudaResults.check(
          cudart_h.cudaGetDeviceProperties(properties, device), "cudaGetDeviceProperties");
      MemorySegment pciBusId = arena.allocate(PCI_BUS_ID_BYTES);
      CudaResults.check(
          cudart_h.cudaDeviceGetPCIBusId(pciBusId, PCI_BUS_ID_BYTES, device),
          "cudaDeviceGetPCIBusId");
      return new Device(
          device,
          cudaDeviceProp.name(properties).getString(0),
          pciBusId.getString(0),
          cudaDeviceProp.totalGlobalMem(properties));
    }
  }

  /**
   * {@return a device's compute capability, ten times the major plus the minor number: 90 for 9.0}
   * C: {@code cudaDeviceGetAttribute}.
   *
   * @param device the index of the device, from 0
   * @throws CudaException if there is no such device
   */
  public static int computeCapability(int device) {
    NativeLibrary.CUDART.load();
    return 10 * attribute(cudart_h.cudaDevAttrComputeCapabilityMajor(), device)
        + attribute(cudart_h.cudaDevAttrComputeCapabilityMinor(), device);
  }

  private static int attribute(int attribute, int device) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(ValueLayout.JAVA_INT);
      CudaResults.check(
          cudart_h.cudaDeviceGetAttribute(value, attribute, device), "cudaDeviceGetAttribute");
      return value.get(ValueLayout.JAVA_INT, 0);
    }
  }

  /**
   * {@return the newest CUDA version that the driver supports, such as 13000, or 0 if there is no
   * driver} C: {@code cudaDriverGetVersion}.
   */
  public static int driverVersion() {
    return CurrentDevice.driverVersion();
  }

  /**
   * {@return this thread's current device} C: {@code cudaGetDevice}.
   *
   * @throws IllegalStateException on a virtual thread
   * @throws CudaException if there is no driver or no device, or they do not work
   */
  public static int current() {
    return CurrentDevice.get();
  }

  /**
   * Makes a device this thread's current device. A thread that drives one rank calls this once with
   * that rank's device, so that later calls need not switch devices. C: {@code cudaSetDevice}.
   *
   * @param device the index of the device, from 0
   * @throws CudaException if there is no such device
   * @throws IllegalStateException on a virtual thread
   */
  public static void use(int device) {
    CurrentDevice.set(device);
  }
}
