package io.nccl4j.spi;

/** A backend's part of an {@link io.nccl4j.Graph} that it captured itself. */
public interface GraphDriver {
  /** Enqueues the captured operations on an open stream of the graph's device. */
  void launch(StreamDriver stream);

  /** Releases what the graph holds; called once. Launches that are enqueued still run. */
  void release();
}
