package io.nccl4j.reference;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.util.BitSet;
import java.util.concurrent.TimeUnit;

/**
 * What has gone wrong with the connection of a link. Where it only broke, its process most likely
 * tells why, or ends; so that is waited for a moment before anybody is told of the connection.
 */
final class TcpBreak {
  /** Thrown where all ranks have been told what is wrong, by the fault of the world. */
  static final class LinkException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private LinkException(String text) {
      super(text);
    }
  }

  private static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(1);

  private final World world;
  private final int peer;
  private String why;
  private long since;

  TcpBreak(World world, int peer) {
    this.world = world;
    this.peer = peer;
  }

  void begin(String reason) {
    why = String.valueOf(reason);
    since = System.nanoTime();
  }

  /** Returns whether the connection has broken; throws if that explains itself by nothing else. */
  boolean broken() {
    if (why == null) {
      return false;
    }
    if (System.nanoTime() - since > GRACE_NANOS) {
      throw fail("the connection to " + name() + " broke: " + why);
    }
    return true;
  }

  /** Tells all ranks that the peer's process cannot be understood; returns what to throw. */
  LinkException nonsense(String what) {
    return fail(name() + " spoke nonsense: " + what);
  }

  private LinkException fail(String text) {
    BitSet failed = new BitSet();
    failed.set(peer);
    world.raise(Fault.nonsense(text, failed));
    return new LinkException(text);
  }

  private String name() {
    BitSet rank = new BitSet();
    rank.set(peer);
    return world.describe(rank);
  }

  static void close(SocketChannel channel) {
    if (channel != null) {
      try {
        channel.close();
      } catch (IOException e) {
        Site.log().warn("the connection of a link could not be closed", e);
      }
    }
  }
}
