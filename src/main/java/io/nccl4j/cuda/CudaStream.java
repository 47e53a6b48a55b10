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
import org.jspecify.annotations.NullMarked;

/** The CUDA-specific operations of a {@link Stream}. An instance is a view and owns nothing. */
@NullMarked
public final class CudaStream {
  private final CudaStreamDriver driver;

  private CudaStream(CudaStreamDriver driver) {
    this.driver = driver;
  }

  /**
   * Wraps a stream that other code created, such as a framework's current stream. 0 and 1 denote
   * the legacy default stream of the device. The per-thread default stream (2) is rejected, because
   * nccl4j waits on its own threads. Closing the wrapper releases only what nccl4j added; the
   * stream's owner must keep the stream alive until then. While other code captures the stream,
   * calls that wait for it throw {@link IllegalStateException}.
   *
   * @param address the {@code cudaStream_t}
   * @param device the index of the device that the stream belongs to, from 0
   * @return the wrapper, for the caller to close
   * @throws IllegalArgumentException if it is the per-thread default stream, or there is no such
   *     device
   * @throws CudaException if there is no driver or no device, or they do not work
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
   * @throws IllegalArgumentException if it belongs to another backend
   */
  public static CudaStream of(Stream stream) {
    Objects.requireNonNull(stream, "stream");
    if (Contract.get().driver(stream) instanceof CudaStreamDriver driver) {
      return new CudaStream(driver);
    }
    throw new IllegalArgumentException("stream is " + stream + "; it must be one of CUDA");
  }

  /**
   * {@return the {@code cudaStream_t}, for use in other native code} It is valid until the stream
   * is closed.
   */
  public long address() {
    return driver.address();
  }

  /** {@return the {@code cudaStream_t} as a pointer for native calls, with the global scope} */
  public MemorySegment pointer() {
    return driver.pointer();
  }
}
