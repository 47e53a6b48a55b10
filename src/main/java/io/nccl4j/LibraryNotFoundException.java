package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import java.util.List;
import org.jspecify.annotations.NullMarked;

/**
 * Thrown when a native library cannot be loaded, or only a version that is too old. The message
 * lists every name and path that was tried, the reason of each failure, and what to do. If other
 * components are missing, such as the other library or the GPU driver, the message names them too.
 */
@NullMarked
public class LibraryNotFoundException extends Nccl4jException {
  private static final long serialVersionUID = 1;

  /** The library's short name, {@code nccl} or {@code cudart}. */
  private final String library;

  /** The attempts, in order. */
  // List.copyOf returns serializable lists.
  @SuppressWarnings("serial")
  private final List<Attempt> attempts;

  /**
   * One name or path that was tried.
   *
   * @param source the source of the name, such as {@code environment variable NCCL4J_NCCL_LIBRARY}
   * @param location the name or path that was passed to the loader, or {@code -} if the source
   *     named none
   * @param reason why it failed: the loader's message if the loader was called
   * @param found whether there is a library that cannot be used; otherwise there is none
   */
  public record Attempt(String source, String location, String reason, boolean found)
      implements java.io.Serializable {

    /**
     * {@return source, location and reason in one line, without a location that is missing or
     * repeated}
     */
    @Override
    public String toString() {
      boolean repeated = location.equals("-") || reason.startsWith(location + ": ");
      return source + ": " + (repeated ? "" : location + ": ") + reason;
    }
  }

  /**
   * Creates an exception for a search that found no usable library.
   *
   * @param library the library's short name, such as {@code nccl}
   * @param attempts the attempts, in order
   * @param remedy what the user can do
   */
  public LibraryNotFoundException(String library, List<Attempt> attempts, String remedy) {
    super(message(library, attempts, remedy));
    this.library = library;
    this.attempts = List.copyOf(attempts);
  }

  /**
   * Creates an exception for a search that found no usable library, on a machine where other
   * components are missing too.
   *
   * @param search the exception of the search
   * @param others the other missing components, at least one line of text each
   */
  public LibraryNotFoundException(LibraryNotFoundException search, List<String> others) {
    super(search.getMessage() + "\nAlso:\n" + String.join("\n", others), search);
    this.library = search.library;
    this.attempts = search.attempts;
  }

  private static String message(String library, List<Attempt> attempts, String remedy) {
    Arguments.noNulls(attempts, "attempts");
    StringBuilder text =
        new StringBuilder(
            "the native library '" + library + "' could not be loaded. " + remedy + " Tried:");
    for (Attempt attempt : attempts) {
      text.append("\n  ").append(attempt);
    }
    return text.toString();
  }

  /**
   * {@return the library's short name, {@code nccl} or {@code cudart}; the first if both are
   * missing}
   */
  public String library() {
    return library;
  }

  /** {@return the attempts to load {@link #library}, in order} */
  public List<Attempt> attempts() {
    return attempts;
  }
}
