package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.LogManager;

/**
 * What has gone wrong with the connection of a link. Where it only broke, its process most likely
 * tells why, or ends; so that is waited for a moment before anybody is told of the connection.
 */
public final class TcpFailure {
  /** Thrown where all ranks have been told what is wrong, by the fault of the world. */
  public static final class LinkException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private LinkException(String text) {
      super(text);
    }
  }

  private static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(1);

  private final LinkContext context;
  private final int peer;
  private String why;
  private long since;

  TcpFailure(LinkContext context, int peer) {
    this.context = context;
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
      throw fail("the connection to " + context.describe(peer) + " broke: " + why);
    }
    return true;
  }

  /** Tells all ranks that the peer's process cannot be understood; returns what to throw. */
  LinkException protocolViolation(String what) {
    return fail(context.describe(peer) + " violated the protocol: " + what);
  }

  private LinkException fail(String text) {
    context.fail(peer, text);
    return new LinkException(text);
  }

  public static void close(SocketChannel channel) {
    if (channel != null) {
      try {
        channel.close();
      } catch (IOException e) {
        LogManager.getLogger(TcpFailure.class)
            .warn("the connection of a link could not be closed", e);
      }
    }
  }
}
