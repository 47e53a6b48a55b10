package io.nccl4j.training;

import io.nccl4j.Buffer;
import java.util.Objects;
import java.util.Optional;

/**
 * One parameter of a model: the memory of its value and of its gradient, both the caller's, who
 * keeps them open for as long as the reducer.
 *
 * @param name what it is called in messages and traces, such as {@code "layer1.weight"}; the same
 *     on every rank, not blank, no control characters
 * @param value the parameter itself, of a floating-point type
 * @param gradient where backward leaves the gradient, of the value's type and count: it is copied
 *     into its bucket and, reduced, back. If empty, the gradient lives in the bucket and nothing is
 *     copied: backward writes to {@link Reducer#gradient}
 */
public record Parameter(String name, Buffer value, Optional<Buffer> gradient) {
  /**
   * Checks the values.
   *
   * @throws IllegalArgumentException if the name is blank or has a control character, the type is
   *     an integer one, or the gradient's type or count is not the value's
   */
  public Parameter {
    Objects.requireNonNull(name, "name");
    Objects.requireNonNull(value, "value");
    Objects.requireNonNull(gradient, "gradient");
    if (name.isBlank() || name.chars().anyMatch(Character::isISOControl)) {
      throw new IllegalArgumentException(
          "name is '" + name + "'; it must not be blank, nor have control characters");
    }
    if (!value.type().floating()) {
      throw new IllegalArgumentException(
          "parameter '%s' has type %s; gradients are averaged, so it must be a floating-point type"
              .formatted(name, value.type()));
    }
    gradient.ifPresent(given -> checkFits(name, value, given));
  }

  /**
   * {@return a parameter whose gradient is copied into its bucket and back}
   *
   * @param name what it is called, the same on every rank
   * @param value the parameter itself
   * @param gradient where backward leaves the gradient, of the value's type and count
   * @throws IllegalArgumentException as the constructor does
   */
  public static Parameter of(String name, Buffer value, Buffer gradient) {
    return new Parameter(name, value, Optional.of(Objects.requireNonNull(gradient, "gradient")));
  }

  /**
   * {@return a parameter whose gradient lives in its bucket}
   *
   * @param name what it is called, the same on every rank
   * @param value the parameter itself
   * @throws IllegalArgumentException as the constructor does
   */
  public static Parameter of(String name, Buffer value) {
    return new Parameter(name, value, Optional.empty());
  }

  private static void checkFits(String name, Buffer value, Buffer gradient) {
    if (gradient.type() != value.type()) {
      throw new IllegalArgumentException(
          "the gradient of '%s' has type %s; it must be that of the value, %s"
              .formatted(name, gradient.type(), value.type()));
    }
    if (gradient.count() != value.count()) {
      throw new IllegalArgumentException(
          "the gradient of '%s' has count %d; it must be that of the value, %d"
              .formatted(name, gradient.count(), value.count()));
    }
  }

  /** {@return what people read: name, type and count} */
  @Override
  public String toString() {
    return "'" + name + "', " + value.type() + " x " + value.count();
  }
}
