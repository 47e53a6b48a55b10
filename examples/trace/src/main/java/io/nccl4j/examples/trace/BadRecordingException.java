package io.nccl4j.examples.trace;

/** A file that nothing can be read from; its message names it. */
final class BadRecordingException extends Exception {
  private static final long serialVersionUID = 1;

  BadRecordingException(String message) {
    super(message);
  }
}
