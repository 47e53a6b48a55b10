package io.nccl4j.libtorch;

import io.nccl4j.Nccl4jException;

/** Thrown when a libtorch function fails, or the loaded libtorch lacks it. */
public final class LibtorchException extends Nccl4jException {
  private static final long serialVersionUID = 1;

  /** The C function. */
  private final String function;

  LibtorchException(String function, String message) {
    super(message);
    this.function = function;
  }

  /** {@return the name of the C function} */
  public String function() {
    return function;
  }
}
