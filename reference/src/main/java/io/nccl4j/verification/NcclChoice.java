package io.nccl4j.verification;

import io.nccl4j.plugin.NcclAlgorithm;
import io.nccl4j.plugin.NcclPlugins;
import io.nccl4j.plugin.NcclProtocol;
import io.nccl4j.plugin.ProfilerEvent;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What NCCL has chosen for one collective.
 *
 * @param channels the number of channels
 */
record NcclChoice(NcclAlgorithm algorithm, NcclProtocol protocol, int channels) {
  private static final List<NcclAlgorithm> ALGORITHMS = List.of(NcclAlgorithm.values());
  private static final List<NcclProtocol> PROTOCOLS = List.of(NcclProtocol.values());
  private static final long UNKNOWN = -1;

  private static final Set<Awaited> AWAITED = ConcurrentHashMap.newKeySet();
  private static boolean installed;

  /** A collective that is about to be launched. Only one at a time has these buffers. */
  record Awaited(
      int rank,
      String function,
      long send,
      long receive,
      long since,
      CompletableFuture<NcclChoice> choice) {
    private void offer(ProfilerEvent.Collective event) {
      if (event.rank() == rank
          && event.function().equals(function)
          && event.sendAddress() == send
          && event.receiveAddress() == receive
          && event.nanos() >= since) {
        choice.complete(of(event));
      }
    }
  }

  static synchronized void install() {
    if (!installed) {
      NcclPlugins.addProfiler(
          event -> {
            if (event instanceof ProfilerEvent.Collective collective) {
              AWAITED.forEach(awaited -> awaited.offer(collective));
            }
          });
      installed = true;
    }
  }

  static synchronized boolean installed() {
    return installed;
  }

  /** Returns the choice for a collective that this thread launches next, once NCCL reports it. */
  static Awaited await(int rank, String function, long send, long receive) {
    Awaited awaited =
        new Awaited(rank, function, send, receive, System.nanoTime(), new CompletableFuture<>());
    if (installed()) {
      AWAITED.add(awaited);
    } else {
      awaited.choice.complete(null);
    }
    return awaited;
  }

  static void forget(Awaited awaited) {
    AWAITED.remove(awaited);
  }

  private static NcclChoice of(ProfilerEvent.Collective event) {
    for (NcclAlgorithm algorithm : ALGORITHMS) {
      for (NcclProtocol protocol : PROTOCOLS) {
        if (algorithm.name().equals(event.algorithm())
            && protocol.name().equals(event.protocol())) {
          return new NcclChoice(algorithm, protocol, event.channels());
        }
      }
    }
    return null;
  }

  /** Returns a number for a choice, or for null. */
  static long encode(NcclChoice choice) {
    return choice == null
        ? UNKNOWN
        : (long) ALGORITHMS.indexOf(choice.algorithm) << 16
            | (long) PROTOCOLS.indexOf(choice.protocol) << 8
            | choice.channels;
  }

  /** Returns the choice of a number, or null. */
  static NcclChoice decode(long number) {
    return number == UNKNOWN
        ? null
        : new NcclChoice(
            ALGORITHMS.get((int) (number >> 16)),
            PROTOCOLS.get((int) (number >> 8 & 0xFF)),
            (int) (number & 0xFF));
  }

  @Override
  public String toString() {
    return algorithm + ", " + protocol + ", " + channels + " channels";
  }
}
