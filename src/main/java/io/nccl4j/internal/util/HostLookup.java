package io.nccl4j.internal.util;

import java.io.IOException;
import java.net.InetAddress;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Resolves host names with a deadline, which the system's lookup does not support. */
public final class HostLookup {
  private HostLookup() {}

  /**
   * Returns the current addresses of a host.
   *
   * @throws IOException if the name does not resolve, or not in time
   */
  public static InetAddress[] addresses(String host, Deadline deadline)
      throws IOException, InterruptedException {
    FutureTask<InetAddress[]> lookup = new FutureTask<>(() -> InetAddress.getAllByName(host));
    // Not a virtual thread: the system's lookup would pin one of the few carrier threads.
    Thread.ofPlatform().daemon().name("nccl4j-lookup").start(lookup);
    try {
      return lookup.get(Math.max(1, deadline.remainingNanos()), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      throw new IOException("the name " + host + " was not resolved in time", e);
    } catch (ExecutionException e) {
      throw new IOException("the name " + host + " does not resolve: " + e.getCause(), e);
    }
  }
}
