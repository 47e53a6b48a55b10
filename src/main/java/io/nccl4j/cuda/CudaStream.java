package io.nccl4j.cuda;

import io.nccl4j.CudaException;
import io.nccl4j.DeviceType;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.cuda.CudaStreamDriver;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.Contract;
import java.lang.foreign.MemorySegment;
import java.util.Objects;

/**
 * What only CUDA has of a {@link Stream}: a view, which owns nothing. It also makes streams that
 * stand for one of a framework.
 */
public final class CudaStream {
  private final CudaStreamDriver driver;

  private CudaStream(CudaStreamDriver driver) {
    this.driver = driver;
  }

  /**
   * Creates a stream of a device, for the caller to close. It does not wait for the legacy default
   * stream. C: {@code cudaStreamCreateWithFlags}.
   *
   * @param device the index of the device that runs its work, from 0
   * @return the stream
   * @throws CudaException if the runtime refuses
   */
  public static Stream create(int device) {
    return Contract.get().stream(
        DeviceType.CUDA, device, users -> CudaStreamDriver.create(device, users));
  }

  /**
   * Wraps a stream that other code made, such as a framework's current one; 0 and 1 are the legacy
   * default stream of the device. The per-thread default stream (2) is refused, since nccl4j waits
   * in threads of its own. Closing it frees only what nccl4j added. The owner keeps the stream
   * alive until the wrapper is closed.
   *
   * @param address the {@code cudaStream_t}
   * @param device the index of the device that the stream belongs to, from 0
   * @return the wrapper, for the caller to close
   * @throws IllegalArgumentException if it is the per-thread default stream, or there is no such
   *     device
   * @throws CudaException if there is no driver, no device, or they do not work
   */
  public static Stream ofAddress(long address, int device) {
    if (address == cudart_h.cudaStreamPerThread().address()) {
      throw new IllegalArgumentException(
          "address is 2, the per-thread default stream; it means another stream in each thread");
    }
    Arguments.inRange(device, "device", 0, CudaDevices.count() - 1);
    return Contract.get().stream(
        DeviceType.CUDA, device, users -> CudaStreamDriver.ofAddress(address, device, users));
  }

  /**
   * {@return a view of a stream}
   *
   * @param stream a stream of the NCCL backend
   * @throws IllegalArgumentException if it is of another backend
   */
  public static CudaStream of(Stream stream) {
    Objects.requireNonNull(stream, "stream");
    if (Contract.get().driver(stream) instanceof CudaStreamDriver driver) {
      return new CudaStream(driver);
    }
    throw new IllegalArgumentException("stream is " + stream + "; it must be one of CUDA");
  }

  /**
   * {@return the {@code cudaStream_t}: the way out to other native code} It is valid until the
   * stream is closed.
   */
  public long address() {
    return driver.address();
  }

  /** {@return the {@code cudaStream_t} as native calls take it, a pointer of the global scope} */
  public MemorySegment pointer() {
    return driver.pointer();
  }
}
