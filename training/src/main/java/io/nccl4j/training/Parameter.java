package io.nccl4j.training;

import io.nccl4j.Buffer;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.NullMarked;

/**
 * One parameter of a model: the buffers of its value and its gradient. The caller owns both and
 * keeps them open until the reducer is closed.
 *
 * @param name the name in messages and traces, such as {@code "layer1.weight"}; the same on every
 *     rank, not blank, without control characters
 * @param value the parameter's value, of a floating-point type
 * @param gradient the buffer that backward writes the gradient to, of the value's type and count.
 *     It is copied into its bucket and, once reduced, back. If empty, the gradient is stored in the
 *     bucket and nothing is copied: backward writes to {@link Reducer#gradient}
 */
@NullMarked
public record Parameter(String name, Buffer value, Optional<Buffer> gradient) {
  /**
   * Checks the values.
   *
   * @throws IllegalArgumentException if the name is blank or has a control character, the type is
   *     not a floating-point type, or the gradient's type or count differs from the value's
   */
  public Parameter {
    Objects.requireNonNull(name, "name");
    Objects.requireNonNull(value, "value");
    Objects.requireNonNull(gradient, "gradient");
    if (name.isBlank() || name.chars().anyMatch(Character::isISOControl)) {
      throw new IllegalArgumentException(
          "name is '" + name + "'; it must not be blank or have control characters");
    }
    if (!value.type().floating()) {
      throw new IllegalArgumentException(
          "parameter '%s' has type %s; gradients are averaged, so it must be a floating-point type"
              .formatted(name, value.type()));
    }
    gradient.ifPresent(buffer -> checkFits(name, value, buffer));
  }

  /**
   * {@return a parameter whose gradient is copied into its bucket and back}
   *
   * @param name the name, the same on every rank
   * @param value the parameter's value
   * @param gradient the buffer that backward writes the gradient to, of the value's type and count
   * @throws IllegalArgumentException as the constructor does
   */
  public static Parameter of(String name, Buffer value, Buffer gradient) {
    return new Parameter(name, value, Optional.of(Objects.requireNonNull(gradient, "gradient")));
  }

  /**
   * {@return a parameter whose gradient is stored in its bucket}
   *
   * @param name the name, the same on every rank
   * @param value the parameter's value
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

  /** {@return a description: name, type and count} */
  @Override
  public String toString() {
    return "'" + name + "', " + value.type() + " x " + value.count();
  }
}
