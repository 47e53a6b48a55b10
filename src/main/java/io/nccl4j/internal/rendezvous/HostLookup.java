package io.nccl4j.internal.rendezvous;

import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.net.InetAddress;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Finds the addresses of a host, which the system's lookup does without any deadline. */
public final class HostLookup {
  private HostLookup() {}

  /**
   * Returns the addresses that a name has now.
   *
   * @throws IOException if it has none, or the answer did not come in time
   */
  public static InetAddress[] addresses(String host, Deadline deadline)
      throws IOException, InterruptedException {
    FutureTask<InetAddress[]> lookup = new FutureTask<>(() -> InetAddress.getAllByName(host));
    // No virtual thread: the system's lookup would hold its carrier, of which there are few.
    Thread.ofPlatform().daemon().name("nccl4j-rendezvous-lookup").start(lookup);
    try {
      return lookup.get(Math.max(1, deadline.remainingNanos()), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      throw new IOException("the name " + host + " was not resolved in time", e);
    } catch (ExecutionException e) {
      throw new IOException("the name " + host + " does not resolve: " + e.getCause(), e);
    }
  }
}
