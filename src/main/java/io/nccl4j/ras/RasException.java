package io.nccl4j.ras;

import java.io.IOException;
import org.jspecify.annotations.NullMarked;

/**
 * Thrown when the peer answers, but not as a RAS service of a release that has the request: it
 * refuses the request, it sends something else, or it sends too much.
 */
@NullMarked
public final class RasException extends IOException {
  private static final long serialVersionUID = 1;

  RasException(String message) {
    super(message);
  }
}
