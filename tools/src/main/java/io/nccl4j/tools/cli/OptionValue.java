package io.nccl4j.tools.cli;

import java.lang.reflect.AnnotatedElement;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.function.Function;
import picocli.CommandLine;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.TypeConversionException;

/**
 * Converts option values for all commands. The message for an invalid value quotes it and gives the
 * rule; picocli puts the option's name in front.
 */
public final class OptionValue {
  private OptionValue() {}

  /**
   * Adds the conversions of option types: decimal integers, long integers as {@link ByteSize},
   * bandwidths and latencies. Enum names may be in upper or lower case.
   *
   * @param line the command
   * @return the same command
   */
  public static CommandLine convert(CommandLine line) {
    line.setCaseInsensitiveEnumValuesAllowed(true);
    convert(line, int.class, OptionValue::whole);
    convert(line, Integer.class, OptionValue::whole);
    convert(line, long.class, ByteSize::parse);
    convert(line, Long.class, ByteSize::parse);
    convert(line, Bandwidth.class, Bandwidth::parse);
    convert(line, Latency.class, Latency::parse);
    return line;
  }

  /**
   * Adds the conversion of an option type.
   *
   * @param <T> the type
   * @param line the command
   * @param type the type
   * @param parser its {@link IllegalArgumentException} quotes the value and gives the rule
   */
  public static <T> void convert(CommandLine line, Class<T> type, Function<String, T> parser) {
    line.registerConverter(
        type,
        text -> {
          try {
            return parser.apply(text);
          } catch (IllegalArgumentException e) {
            throw new TypeConversionException(e.getMessage());
          }
        });
  }

  private static Integer whole(String text) {
    try {
      return Integer.valueOf(text.strip());
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException("'" + text + "' is not a whole number", e);
    }
  }

  /**
   * Checks the bounds of all integer options.
   *
   * @param line the command, whose arguments have been parsed
   * @throws ParameterException if a value is not {@link Within} its bounds
   */
  public static void checkBounds(CommandLine line) {
    for (OptionSpec option : line.getCommandSpec().options()) {
      Within bounds =
          option.userObject() instanceof AnnotatedElement field
              ? field.getAnnotation(Within.class)
              : null;
      if (bounds != null && option.getValue() != null) {
        Object value = option.getValue();
        for (Object each : value instanceof List<?> list ? list : List.of(value)) {
          check(line, option.shortestName(), (int) each, bounds);
        }
      }
    }
  }

  private static void check(CommandLine line, String name, int value, Within bounds) {
    if (value < bounds.least() || value > bounds.most()) {
      throw new ParameterException(
          line,
          bounds.most() == Integer.MAX_VALUE
              ? "%s is %d; it must be %d or more".formatted(name, value, bounds.least())
              : "%s is %d; it must be from %d to %d"
                  .formatted(name, value, bounds.least(), bounds.most()));
    }
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
