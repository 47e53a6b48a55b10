package io.nccl4j.internal.auth;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The connections that a listener has accepted and that have not authenticated yet. Their number is
 * limited. A listener that has reached the limit accepts the next connection once one of them has
 * authenticated or ended, or once the grace period of the oldest has passed; that one is then
 * dropped. So unauthenticated connections use bounded memory, and a legitimate process waits in the
 * backlog at worst.
 *
 * <p>Not thread-safe.
 *
 * @param <C> a connection
 */
public final class PendingConnections<C> {
  /** The system property for the limit; takes precedence over {@link #VARIABLE}. */
  public static final String PROPERTY = "io.nccl4j.pendingConnections";

  /** The environment variable for the limit. */
  public static final String VARIABLE = "NCCL4J_PENDING_CONNECTIONS";

  /** The limit if neither is set. */
  public static final int DEFAULT_LIMIT = 64;

  /** How long a connection is not dropped; many times what a legitimate one needs. */
  public static final Duration GRACE = Duration.ofSeconds(1);

  private static final int MAX_LIMIT = 65536;

  private final int limit;
  private final long graceNanos;
  // The time when each connection was accepted, the oldest first.
  private final Map<C, Long> accepted = new LinkedHashMap<>();

  /**
   * Creates an empty set.
   *
   * @param limit the maximum number of connections
   * @param grace how long a connection is not dropped
   */
  public PendingConnections(int limit, Duration grace) {
    this.limit = limit;
    this.graceNanos = grace.toNanos();
  }

  /**
   * Returns the configured limit.
   *
   * @throws IllegalArgumentException if it is not a number, or out of range
   */
  public static int limit() {
    String property = System.getProperty(PROPERTY);
    String name = property != null ? PROPERTY : VARIABLE;
    String text = property != null ? property : System.getenv(VARIABLE);
    if (text == null || text.isBlank()) {
      return DEFAULT_LIMIT;
    }
    try {
      int limit = Integer.parseInt(text.strip());
      if (limit >= 1 && limit <= MAX_LIMIT) {
        return limit;
      }
    } catch (NumberFormatException e) {
      throw outOfRange(name, text, e);
    }
    throw outOfRange(name, text, null);
  }

  private static IllegalArgumentException outOfRange(String name, String text, Exception cause) {
    return new IllegalArgumentException(
        "%s is %s; it must be from 1 to %d".formatted(name, text, MAX_LIMIT), cause);
  }

  /** Returns how long to wait before accepting the next connection, in nanoseconds. */
  public long nanosUntilRoom() {
    if (accepted.size() < limit) {
      return 0;
    }
    long oldest = accepted.values().iterator().next();
    return Math.max(0, graceNanos - (System.nanoTime() - oldest));
  }

  /** Removes and returns the oldest connection, or returns null if there is none. */
  public C removeOldest() {
    if (accepted.isEmpty()) {
      return null;
    }
    C oldest = accepted.keySet().iterator().next();
    accepted.remove(oldest);
    return oldest;
  }

  /** Returns whether the limit is reached. */
  public boolean full() {
    return accepted.size() >= limit;
  }

  /** Adds a connection that was just accepted. */
  public void add(C connection) {
    accepted.put(connection, System.nanoTime());
  }

  /** Removes a connection that has authenticated or ended. */
  public void remove(C connection) {
    accepted.remove(connection);
  }

  /** Returns the current connections, the oldest first. */
  public List<C> all() {
    return List.copyOf(accepted.keySet());
  }
}
