package io.nccl4j.tools.cli;

import java.lang.reflect.AnnotatedElement;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.TypeConversionException;

/**
 * Converts option values for all commands. The message for an invalid value quotes it and gives the
 * rule; picocli puts the option's name in front.
 */
public final class OptionValue {
  private OptionValue() {}

  /**
   * {@return the options of an object with picocli's annotations, converted by this class} Numbers
   * are integers within the bounds of {@link Within}; enum names may be in upper or lower case. An
   * option that declares a converter keeps it.
   *
   * @param flags the object
   */
  public static CommandSpec spec(Object flags) {
    CommandSpec spec = CommandSpec.forAnnotatedObject(flags);
    // Every option is removed and added again, to keep the order of the help.
    for (OptionSpec option : List.copyOf(spec.options())) {
      OptionSpec.Builder builder = OptionSpec.builder(option);
      if (option.converters().length == 0) {
        converter(option).ifPresent(builder::converters);
      }
      spec.remove(option).addOption(builder.build());
    }
    return spec;
  }

  private static Optional<ITypeConverter<?>> converter(OptionSpec option) {
    Class<?> type = option.auxiliaryTypes()[0];
    Within bounds = ((AnnotatedElement) option.userObject()).getAnnotation(Within.class);
    if (bounds != null) {
      return Optional.of(text -> whole(text, bounds.least(), bounds.most()));
    }
    if (type == int.class || type == Integer.class) {
      return Optional.of(OptionValue::whole);
    }
    return type.isEnum() ? Optional.of(text -> named(type, text)) : Optional.empty();
  }

  /** As C's strtol: also hexadecimal after 0x and octal after 0, with a plus sign or blanks. */
  private static int whole(String text) {
    try {
      // Integer.decode also takes #10 for a hexadecimal number.
      return Integer.decode(text.strip().replace('#', '?'));
    } catch (NumberFormatException e) {
      throw new TypeConversionException("'" + text + "' is not a whole number");
    }
  }

  /**
   * {@return a whole number within bounds}
   *
   * @param text the value
   * @param min the minimum
   * @param max the maximum
   * @throws TypeConversionException if the value is not such a number
   */
  public static int whole(String text, int min, int max) {
    if (text.matches("-?[0-9]{1,10}")) {
      long number = Long.parseLong(text);
      if (number >= min && number <= max) {
        return (int) number;
      }
    }
    throw new TypeConversionException(
        "'%s' is not a whole number from %d to %d".formatted(text, min, max));
  }

  /**
   * {@return the enum constant with a name in upper or lower case}
   *
   * @param type the enum
   * @param text the value
   * @throws TypeConversionException if there is no such constant
   */
  static Enum<?> named(Class<?> type, String text) {
    List<Enum<?>> constants = List.of((Enum<?>[]) type.getEnumConstants());
    return constants.stream()
        .filter(constant -> constant.name().equalsIgnoreCase(text))
        .findAny()
        .orElseThrow(
            () ->
                new TypeConversionException(
                    "'%s' is not one of %s"
                        .formatted(
                            text,
                            constants.stream()
                                .map(constant -> constant.name().toLowerCase(Locale.ROOT))
                                .collect(Collectors.joining(", ")))));
  }

  /**
   * {@return a parsed value}
   *
   * @param <T> the type of the result
   * @param text the value
   * @param parser the parser; its {@link IllegalArgumentException} quotes the value and gives the
   *     rule
   * @throws TypeConversionException if the parser rejects the value
   */
  public static <T> T parsed(String text, Function<String, T> parser) {
    try {
      return parser.apply(text);
    } catch (IllegalArgumentException e) {
      throw new TypeConversionException(e.getMessage());
    }
  }

  /**
   * {@return a size in bytes that is a positive multiple of the size of a float32}
   *
   * @param text the value
   * @throws TypeConversionException if the value is not such a size
   */
  public static long float32Bytes(String text) {
    long bytes = parsed(text, ByteSize::parse);
    if (bytes < Float.BYTES || bytes % Float.BYTES != 0) {
      throw new TypeConversionException(
          "'" + text + "' is not a positive multiple of 4 bytes, the size of a float32");
    }
    return bytes;
  }

  /**
   * {@return a file to write, which may exist}
   *
   * @param text the value
   * @param endings the allowed endings of its name; none for any
   * @throws TypeConversionException if its name ends otherwise, or it cannot be written
   */
  public static Path output(String text, String... endings) {
    String name = text.toLowerCase(Locale.ROOT);
    if (endings.length > 0 && Arrays.stream(endings).noneMatch(name::endsWith)) {
      throw new TypeConversionException(
          "'%s' does not end in %s".formatted(text, String.join(" or ", endings)));
    }
    Path file = Path.of(text);
    Path folder = file.toAbsolutePath().getParent();
    if (folder == null || Files.isDirectory(file)) {
      throw new TypeConversionException("'" + text + "' cannot be written: it is a folder");
    }
    if (!Files.isDirectory(folder)) {
      throw new TypeConversionException(
          "'%s' cannot be written: there is no folder '%s'".formatted(text, folder));
    }
    if (!Files.isWritable(Files.exists(file) ? file : folder)) {
      throw new TypeConversionException("'" + text + "' cannot be written: permission denied");
    }
    return file;
  }

  /**
   * {@return a page to write: a file that may exist and ends in .html or .htm}
   *
   * @param text the value
   * @throws TypeConversionException if its name ends otherwise, or it cannot be written
   */
  public static Path page(String text) {
    return output(text, ".html", ".htm");
  }

  /** Converts a size in bytes; see {@link ByteSize}. */
  public static final class Size implements ITypeConverter<Long> {
    /** For picocli. */
    public Size() {}

    @Override
    public Long convert(String text) {
      return parsed(text, ByteSize::parse);
    }
  }

  /** Converts the name of a file to write; see {@link #output}. */
  public static final class Output implements ITypeConverter<Path> {
    /** For picocli. */
    public Output() {}

    @Override
    public Path convert(String text) {
      return output(text);
    }
  }

  /** Converts the name of a page to write; see {@link #page}. */
  public static final class Page implements ITypeConverter<Path> {
    /** For picocli. */
    public Page() {}

    @Override
    public Path convert(String text) {
      return page(text);
    }
  }
}
