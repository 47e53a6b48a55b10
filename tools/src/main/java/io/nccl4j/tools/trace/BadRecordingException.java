package io.nccl4j.tools.trace;

import java.io.IOException;

/** Thrown if a recording cannot be read; the message names the file. */
final class BadRecordingException extends IOException {
  private static final long serialVersionUID = 1;

  BadRecordingException(String message) {
    super(message);
  }
}
