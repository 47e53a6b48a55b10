package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import java.util.List;

/**
 * A native library could not be loaded, or only a version that is too old. The message lists every
 * name and path that was tried, why each failed, and what to do. Where more is missing, such as the
 * other library or the GPU driver, the message names that too.
 */
public class LibraryNotFoundException extends Nccl4jException {
  private static final long serialVersionUID = 1;

  /** The library's short name, {@code nccl} or {@code cudart}. */
  private final String library;

  /** Everything that was tried, in order. */
  // List.copyOf gives serializable lists, which the declared type cannot say.
  @SuppressWarnings("serial")
  private final List<Attempt> attempts;

  /**
   * One name or path that was tried.
   *
   * @param source where the name came from, such as {@code environment variable
   *     NCCL4J_NCCL_LIBRARY}
   * @param location the name or path that was handed to the loader, or {@code -} where the source
   *     named none
   * @param reason why it failed, in the loader's own words where it was asked
   */
  public record Attempt(String source, String location, String reason)
      implements java.io.Serializable {

    /** {@return all three in one line, without a location that there is not or that is repeated} */
    @Override
    public String toString() {
      boolean repeated = location.equals("-") || reason.startsWith(location + ": ");
      return source + ": " + (repeated ? "" : location + ": ") + reason;
    }
  }

  /**
   * Describes one search that found nothing.
   *
   * @param library the library's short name, such as {@code nccl}
   * @param attempts everything that was tried, in order
   * @param remedy what a user can do
   */
  public LibraryNotFoundException(String library, List<Attempt> attempts, String remedy) {
    super(message(library, attempts, remedy));
    this.library = library;
    this.attempts = List.copyOf(attempts);
  }

  /**
   * Describes one search that found nothing, on a machine that lacks other things as well.
   *
   * @param search the search that found nothing
   * @param others what else is missing, at least one line of text each
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

  /** {@return the library's short name, {@code nccl} or {@code cudart}; the first if both lack} */
  public String library() {
    return library;
  }

  /** {@return everything that was tried for {@link #library}, in order} */
  public List<Attempt> attempts() {
    return attempts;
  }
}
