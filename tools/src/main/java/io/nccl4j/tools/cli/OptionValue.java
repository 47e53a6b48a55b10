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
 * What the values of the commands' options may be. A value that is refused is quoted, and the rule
 * said; picocli puts the option's name in front.
 */
public final class OptionValue {
  private OptionValue() {}

  /**
   * {@return the options of an object with picocli's annotations, which read their values alike in
   * every command} Numbers are whole, and within the bounds of {@link Within}; enums are named in
   * upper or lower case. An option with a converter of its own keeps it.
   *
   * @param flags the object
   */
  public static CommandSpec spec(Object flags) {
    CommandSpec spec = CommandSpec.forAnnotatedObject(flags);
    // All are added anew, in their order, which is that of the help.
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

  private static int whole(String text) {
    try {
      return Integer.parseInt(text);
    } catch (NumberFormatException e) {
      throw new TypeConversionException("'" + text + "' is no whole number");
    }
  }

  /**
   * {@return a whole number within bounds}
   *
   * @param text the value
   * @param least the least that is allowed
   * @param most the most that is allowed
   * @throws TypeConversionException if it is something else
   */
  public static int whole(String text, int least, int most) {
    if (text.matches("-?[0-9]{1,10}")) {
      long number = Long.parseLong(text);
      if (number >= least && number <= most) {
        return (int) number;
      }
    }
    throw new TypeConversionException(
        "'%s' is no whole number from %d to %d".formatted(text, least, most));
  }

  /**
   * {@return the constant of a name, in upper or lower case}
   *
   * @param type the enum
   * @param text the value
   * @throws TypeConversionException if there is none
   */
  static Enum<?> named(Class<?> type, String text) {
    List<Enum<?>> constants = List.of((Enum<?>[]) type.getEnumConstants());
    return constants.stream()
        .filter(constant -> constant.name().equalsIgnoreCase(text))
        .findAny()
        .orElseThrow(
            () ->
                new TypeConversionException(
                    "'%s' is none of %s"
                        .formatted(
                            text,
                            constants.stream()
                                .map(constant -> constant.name().toLowerCase(Locale.ROOT))
                                .collect(Collectors.joining(", ")))));
  }

  /**
   * {@return what a parser makes of a value}
   *
   * @param <T> what that is
   * @param text the value
   * @param parser throws an {@link IllegalArgumentException} that quotes the value and says the
   *     rule
   * @throws TypeConversionException if the parser refuses it
   */
  public static <T> T parsed(String text, Function<String, T> parser) {
    try {
      return parser.apply(text);
    } catch (IllegalArgumentException e) {
      throw new TypeConversionException(e.getMessage());
    }
  }

  /**
   * {@return a size in bytes that float32s fill, at least one}
   *
   * @param text the value
   * @throws TypeConversionException if it is something else
   */
  public static long float32Bytes(String text) {
    long bytes = parsed(text, ByteSize::parse);
    if (bytes < Float.BYTES || bytes % Float.BYTES != 0) {
      throw new TypeConversionException(
          "'" + text + "' is no positive multiple of 4 bytes, the size of a float32");
    }
    return bytes;
  }

  /**
   * {@return a file to be written, which may exist}
   *
   * @param text the value
   * @param endings what its name may end in; none for any
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
      throw new TypeConversionException("'" + text + "' cannot be written: permission is missing");
    }
    return file;
  }

  /**
   * {@return a picture to be written: a file that may exist and ends in .svg or .png}
   *
   * @param text the value
   * @throws TypeConversionException if its name ends otherwise, it cannot be written, or this Java
   *     cannot draw; a trimmed one may lack the part of it that does
   */
  public static Path picture(String text) {
    Path file = output(text, ".svg", ".png");
    if (ModuleLayer.boot().findModule("java.desktop").isEmpty()) {
      throw new TypeConversionException(
          "'" + text + "' cannot be drawn: this Java has no module java.desktop");
    }
    return file;
  }

  /**
   * {@return a page to be written: a file that may exist and ends in .html or .htm}
   *
   * @param text the value
   * @throws TypeConversionException if its name ends otherwise, or it cannot be written
   */
  public static Path page(String text) {
    return output(text, ".html", ".htm");
  }

  /** Takes a size in bytes; see {@link ByteSize}. */
  public static final class Size implements ITypeConverter<Long> {
    /** For picocli. */
    public Size() {}

    @Override
    public Long convert(String text) {
      return parsed(text, ByteSize::parse);
    }
  }

  /** Takes any file to be written; see {@link #output}. */
  public static final class Output implements ITypeConverter<Path> {
    /** For picocli. */
    public Output() {}

    @Override
    public Path convert(String text) {
      return output(text);
    }
  }

  /** Takes a picture to be written; see {@link #picture}. */
  public static final class Picture implements ITypeConverter<Path> {
    /** For picocli. */
    public Picture() {}

    @Override
    public Path convert(String text) {
      return picture(text);
    }
  }

  /** Takes a page to be written; see {@link #page}. */
  public static final class Page implements ITypeConverter<Path> {
    /** For picocli. */
    public Page() {}

    @Override
    public Path convert(String text) {
      return page(text);
    }
  }
}
