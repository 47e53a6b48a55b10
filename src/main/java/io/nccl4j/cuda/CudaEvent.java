package io.nccl4j.cuda;

import io.nccl4j.Event;
import io.nccl4j.internal.cuda.CudaEventDriver;
import io.nccl4j.spi.Contract;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/** The CUDA-specific operations of an {@link Event}. An instance is a view and owns nothing. */
@NullMarked
public final class CudaEvent {
  private final CudaEventDriver driver;

  private CudaEvent(CudaEventDriver driver) {
    this.driver = driver;
  }

  /**
   * {@return a view of an event}
   *
   * @param event an event of the NCCL backend
   * @throws IllegalArgumentException if it belongs to another backend
   */
  public static CudaEvent of(Event event) {
    Objects.requireNonNull(event, "event");
    if (Contract.get().driver(event) instanceof CudaEventDriver driver) {
      return new CudaEvent(driver);
    }
    throw new IllegalArgumentException("event is " + event + "; it must be one of CUDA");
  }

  /**
   * {@return the {@code cudaEvent_t}, for use in other native code} It is valid until the event is
   * closed.
   */
  public long address() {
    return driver.address();
  }
}
