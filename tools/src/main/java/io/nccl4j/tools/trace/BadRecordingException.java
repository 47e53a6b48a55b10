package io.nccl4j.tools.trace;

import java.io.IOException;

/** A file that nothing can be read from; its message names it. */
final class BadRecordingException extends IOException {
  private static final long serialVersionUID = 1;

  BadRecordingException(String message) {
    super(message);
  }
}
