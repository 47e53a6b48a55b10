package io.nccl4j.tools.evidence;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Takes out of a text what belongs to one machine and says nothing about the result: where things
 * lay, and what the machine is called.
 */
final class Redaction {
  /** The folder of a Python environment, up to where its packages are. */
  private static final Pattern SITE_PACKAGES =
      Pattern.compile("/[^\\s\"':]*?/(site|dist)-packages/");

  private record Replacement(Pattern pattern, String by) {}

  private final List<Replacement> replacements = new ArrayList<>();

  /** Replaces a folder by a name, in every later text. Name inner folders before outer ones. */
  Redaction folder(Path folder, String name) {
    // The home of a user whom the system does not know is "?".
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
