package io.nccl4j.spi;

/** The driver of an {@link io.nccl4j.Graph} that the backend captured natively. */
public interface GraphDriver {
  /** Enqueues the captured operations on an open stream of the graph's device. */
  void launch(StreamDriver stream);

  /** Releases the graph's resources; called once. Enqueued launches still run. */
  void release();
}
