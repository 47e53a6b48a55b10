package io.nccl4j.internal.auth;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.SequencedSet;

/**
 * The connections that a listener has accepted and that have not authenticated yet. Their number is
 * limited: each connection beyond the limit takes the place of the oldest. A process of the run
 * authenticates within a round trip, so it is dropped only if a whole set of other connections
 * arrives in that time; then it connects again.
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
  public static final int DEFAULT_LIMIT = 1024;

  private static final int MAX_LIMIT = 65536;

  private final int limit;
  // The oldest first.
  private final SequencedSet<C> pending = new LinkedHashSet<>();

  /** Creates an empty set with the maximum number of connections. */
  public PendingConnections(int limit) {
    this.limit = limit;
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

  /** Adds a connection; returns the oldest one, for the caller to drop, if there was no room. */
  public C add(C connection) {
    C oldest = pending.size() < limit ? null : removeOldest();
    pending.add(connection);
    return oldest;
  }

  /** Removes and returns the oldest connection, or returns null if there is none. */
  public C removeOldest() {
    return pending.isEmpty() ? null : pending.removeFirst();
  }

  /** Removes a connection that has authenticated or ended; returns whether it was there. */
  public boolean remove(C connection) {
    return pending.remove(connection);
  }

  /** Returns the current connections, the oldest first. */
  public List<C> all() {
    return List.copyOf(pending);
  }
}
