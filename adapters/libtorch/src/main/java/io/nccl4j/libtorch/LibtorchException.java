package io.nccl4j.libtorch;

/** Thrown when a libtorch function fails, or the loaded libtorch lacks it. */
public final class LibtorchException extends RuntimeException {
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
