package io.nccl4j.internal.rendezvous;

import io.nccl4j.internal.util.Deadline;
import java.io.Closeable;
import java.io.IOException;
import java.util.Map;

/**
 * Values by key, which every rank of a run can set, get and delete. A {@link StoreExchange} waits
 * by polling, so a store needs no operation that waits.
 */
public interface Store extends Closeable {
  /** The longest value that an exchange sets. */
  int MAX_VALUE_BYTES = 4096;

  /**
   * Returns when the store can be used. {@link #close} ends this in any thread.
   *
   * @throws java.net.SocketTimeoutException if it cannot be reached before the deadline
   * @throws java.net.ProtocolException if it is not the expected store, or rejects this rank
   */
  default void open(Deadline deadline) throws IOException, InterruptedException {}

  /** Sets a value. When this returns, all ranks can get it. */
  void set(String key, byte[] value) throws IOException;

  /** Returns the value of a key, or an empty array if it has none. */
  byte[] get(String key) throws IOException;

  /** Removes the value of a key, if it has one. */
  void delete(String key) throws IOException;

  /** Returns the processes that claimed a rank but do not know the secret, by that rank. */
  default Map<Integer, String> impostors() {
    return Map.of();
  }

  /** Returns what else was noticed and may explain a failure; empty if nothing was. */
  default String report() {
    return "";
  }
}
