package io.nccl4j.tools.evidence;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Removes paths and the host name from a text: they identify the machine and do not matter for the
 * result.
 */
final class Redaction {
  /** The path of a Python environment, up to its packages. */
  private static final Pattern SITE_PACKAGES =
      Pattern.compile("/[^\\s\"':]*?/(site|dist)-packages/");

  private record Replacement(Pattern pattern, String by) {}

  private final List<Replacement> replacements = new ArrayList<>();

  /** Replaces a directory by a name. Inner directories must be added before outer ones. */
  Redaction folder(Path folder, String name) {
    // The home directory of a user without a passwd entry is "?".
    boolean nothing = folder.getNameCount() == 0 || !folder.isAbsolute();
    return nothing ? this : literal(folder.toString(), name, "(?![\\w-])");
  }

  /** Replaces a word by a name. */
  Redaction word(String word, String name) {
    return word.length() < 3 ? this : literal(word, name, "(?![\\w.-])");
  }

  private Redaction literal(String text, String name, String after) {
    Pattern pattern = Pattern.compile("(?<![\\w.-])" + Pattern.quote(text) + after);
    replacements.add(new Replacement(pattern, name.replace("$", "\\$")));
    return this;
  }

  String apply(String text) {
    String result = text;
    for (Replacement replacement : replacements) {
      result = replacement.pattern().matcher(result).replaceAll(replacement.by());
    }
    return SITE_PACKAGES.matcher(result).replaceAll("\\$PYTHON/$1-packages/");
  }
}
