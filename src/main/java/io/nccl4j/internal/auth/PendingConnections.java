package io.nccl4j.internal.auth;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The connections that a listener has accepted and that have not proved yet that they know a
 * secret. There are never more than a limit: a listener that is full accepts the next connection
 * once one of them has proved itself or ended, or once the oldest has had its time, which is then
 * dropped. So strangers cost bounded memory, and an honest process waits in the backlog at worst.
 *
 * <p>Not thread-safe.
 *
 * @param <C> a connection
 */
public final class PendingConnections<C> {
  /** The system property that sets how many there may be; it overrules {@link #VARIABLE}. */
  public static final String PROPERTY = "io.nccl4j.pendingConnections";

  /** The environment variable that sets how many there may be. */
  public static final String VARIABLE = "NCCL4J_PENDING_CONNECTIONS";

  /** How many there may be if neither is set. */
  public static final int DEFAULT_LIMIT = 64;

  /** How long a connection is safe from being dropped: many times what an honest one needs. */
  public static final Duration GRACE = Duration.ofSeconds(1);

  private static final int HIGHEST_LIMIT = 65536;

  private final int limit;
  private final long graceNanos;
  // The oldest first, with the time when each was accepted.
  private final Map<C, Long> accepted = new LinkedHashMap<>();

  /**
   * Makes a set of none.
   *
   * @param limit how many there may be
   * @param grace how long each is safe from being dropped
   */
  public PendingConnections(int limit, Duration grace) {
    this.limit = limit;
    this.graceNanos = grace.toNanos();
  }

  /**
   * Returns the limit that is set.
   *
   * @throws IllegalArgumentException if it is no number, or out of its range
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
      if (limit >= 1 && limit <= HIGHEST_LIMIT) {
        return limit;
      }
    } catch (NumberFormatException e) {
      throw outOfRange(name, text, e);
    }
    throw outOfRange(name, text, null);
  }

  private static IllegalArgumentException outOfRange(String name, String text, Exception cause) {
    return new IllegalArgumentException(
        "%s is %s; it must be from 1 to %d".formatted(name, text, HIGHEST_LIMIT), cause);
  }

  /**
   * Returns how long to wait before the next connection is accepted, in nanoseconds; 0 is not at
   * all.
   */
  public long nanosUntilRoom() {
    if (accepted.size() < limit) {
      return 0;
    }
    long oldest = accepted.values().iterator().next();
    return Math.max(0, graceNanos - (System.nanoTime() - oldest));
  }

  /** Removes the oldest and returns it, or null if there is none. */
  public C removeOldest() {
    if (accepted.isEmpty()) {
      return null;
    }
    C oldest = accepted.keySet().iterator().next();
    accepted.remove(oldest);
    return oldest;
  }

  /** Returns whether another one needs the place of the oldest. */
  public boolean full() {
    return accepted.size() >= limit;
  }

  /** Adds a connection that was just accepted. */
  public void add(C connection) {
    accepted.put(connection, System.nanoTime());
  }

  /** Removes a connection that has proved itself or has ended. */
  public void remove(C connection) {
    accepted.remove(connection);
  }

  /** Returns those that there are now, the oldest first. */
  public List<C> all() {
    return List.copyOf(accepted.keySet());
  }
}
