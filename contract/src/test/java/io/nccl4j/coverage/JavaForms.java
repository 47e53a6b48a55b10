package io.nccl4j.coverage;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.NavigableMap;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * Finds the public methods whose Javadoc names their C function in a sentence such as "C: {@code
 * ncclCommSplit}, from NCCL 2.18 on." For a record component, the sentence is in its tag. The
 * parser expects sources as the formatter writes them.
 */
final class JavaForms {
  private static final Pattern MEMBER =
      Pattern.compile(
          "^( *)/\\*\\*((?:(?!\\*/).)*)\\*/\\s*(?:@[^\\n]*\\n\\s*)*public ([^;{=(]*?)(\\w+)\\(",
          Pattern.MULTILINE | Pattern.DOTALL);
  private static final Pattern TYPE =
      Pattern.compile("^( *)[a-z -]*(?:class|interface|enum|record) (\\w+)", Pattern.MULTILINE);
  // A sentence ends with a full stop before a space, or at the end of its tag; version numbers
  // contain full stops.
  private static final Pattern SENTENCE = Pattern.compile("\\bC: (.*?)(?:\\.(?=\\s)|\\.?$)");
  private static final Pattern BEFORE_TAG = Pattern.compile(" (?=@[a-z]+ )");
  private static final Pattern COMPONENT = Pattern.compile("@param (\\w+) ");
  private static final Pattern FUNCTION = Pattern.compile("\\{@code ((?:nccl|cuda)[A-Z]\\w*)");
  private static final Pattern RELEASE = Pattern.compile("from NCCL (\\d+(?:\\.\\d+)+) on");

  /**
   * One mention of a C function.
   *
   * @param member such as {@code Communicator.split}
   * @param release the first release that the sentence names, or null
   */
  record Mention(String function, String member, String release) {}

  private JavaForms() {}

  /** Returns the Java forms of each function, in alphabetical order. */
  static SortedMap<String, SortedSet<String>> byFunction(List<Mention> mentions) {
    SortedMap<String, SortedSet<String>> forms = new TreeMap<>();
    for (Mention mention : mentions) {
      forms.computeIfAbsent(mention.function(), f -> new TreeSet<>()).add(mention.member());
    }
    return forms;
  }

  /** Returns the mentions in the Javadoc of all public methods in a source folder. */
  static List<Mention> mentions(Path sources) throws IOException {
    List<Mention> mentions = new ArrayList<>();
    List<Path> files;
    try (Stream<Path> all = Files.walk(sources)) {
      files = all.filter(f -> f.toString().endsWith(".java")).sorted().toList();
    }
    for (Path file : files) {
      String text = Files.readString(file);
      Matcher member = MEMBER.matcher(text);
      while (member.find()) {
        String owner = owner(text.substring(0, member.start()), member.group(1).length());
        String name = owner.isEmpty() ? member.group(4) : owner + "." + member.group(4);
        boolean record = member.group(3).endsWith("record ");
        for (String part : parts(member.group(2))) {
          Matcher component = COMPONENT.matcher(part);
          boolean ofComponent = record && component.lookingAt();
          add(mentions, ofComponent ? name + "." + component.group(1) : name, part);
        }
      }
    }
    return mentions;
  }

  /** Returns the description of a comment, then each of its tags. */
  private static String[] parts(String comment) {
    String words = comment.replaceAll("\\n\\s*\\* ?", " ").replaceAll("\\s+", " ");
    return BEFORE_TAG.split(words.strip());
  }

  private static void add(List<Mention> mentions, String member, String part) {
    Matcher sentence = SENTENCE.matcher(part);
    while (sentence.find()) {
      Matcher release = RELEASE.matcher(sentence.group(1));
      String since = release.find() ? release.group(1) : null;
      Matcher function = FUNCTION.matcher(sentence.group(1));
      while (function.find()) {
        mentions.add(new Mention(function.group(1), member, since));
      }
    }
  }

  /** Returns the type that encloses a member with the given indentation, without its package. */
  private static String owner(String before, int indentation) {
    NavigableMap<Integer, String> open = new TreeMap<>();
    Matcher type = TYPE.matcher(before);
    while (type.find()) {
      int depth = type.group(1).length();
      open.tailMap(depth, true).clear();
      open.put(depth, type.group(2));
    }
    return String.join(".", open.headMap(indentation, false).values());
  }
}
