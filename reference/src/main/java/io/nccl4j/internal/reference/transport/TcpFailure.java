package io.nccl4j.internal.reference.transport;

import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;

/**
 * The failure of a link's connection. When a connection breaks, the process at its other end most
 * likely reports the cause or exits; so a broken connection is reported only after a grace period.
 */
public final class TcpFailure {
  /** Thrown after the failure has been reported to all ranks through the communicator. */
  public static final class LinkException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private LinkException(String text) {
      super(text);
    }
  }

  private static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(1);

  private final LinkContext context;
  private final int peer;
  private String reason;
  private long since;

  TcpFailure(LinkContext context, int peer) {
    this.context = context;
    this.peer = peer;
  }

  void begin(String cause) {
    reason = String.valueOf(cause);
    since = System.nanoTime();
  }

  /** Returns whether the connection has broken; throws once the grace period has passed. */
  boolean broken() {
    if (reason == null) {
      return false;
    }
    if (System.nanoTime() - since > GRACE_NANOS) {
      String text = "the connection to " + context.describe(peer) + " broke: " + reason;
      context.fail(peer, text);
      throw new LinkException(text);
    }
    return true;
  }

  public static void close(SocketChannel channel) {
    if (channel != null) {
      try {
        channel.close();
      } catch (IOException e) {
        Loggers.of(TcpFailure.class).warn("the connection of a link could not be closed", e);
      }
    }
  }
}
