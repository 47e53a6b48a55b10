package io.nccl4j.coverage;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.libraries.Releases;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** {@code docs/api-coverage.md}, made of what lies in the repository and what the tests called. */
final class ApiCoverage {
  static final Path PAGE = Checkout.ROOT.resolve("docs/api-coverage.md");
  private static final Path EVIDENCE = Checkout.ROOT.resolve("docs/evidence");
  private static final String INCLUDED = "--include-function ";
  private static final Pattern ROW =
      Pattern.compile("^\\| `(\\w+)` \\|.*\\| (yes|-) \\| (yes|-) \\| (?:yes|-) \\|$");
  private static final Pattern CALLED_ON_GPU =
      Pattern.compile("\"functionsCalled\"\\s*:\\s*\"([^\"]*)\"");
  private static final Pattern WORD = Pattern.compile("\\w+");

  // Every other function of NCCL is to have a form.
  private static final Map<String, String> NO_FORM =
      Map.of("ncclResetDebugInit", "none: NVIDIA has deprecated it");

  private static final String ABOUT =
      """
      # What of the C libraries is bound, offered and tested

      Made by `scripts/api-coverage`; a test fails where this page is not what that would write.

      | column | where it comes from |
      |---|---|
      | function | the include lists `headers/*.includes`, which name every function of `nccl.h`, and those of the CUDA runtime that are used |
      | bound | the generated class has a method of that name |
      | Java form | the public methods whose Javadoc names it in a sentence `C: ...`; of a record, the Javadoc of the component |
      | since | `headers/nccl.releases`: the first release that has it |
      | stand-in | the tests on the stand-in (`src/test/native`) called it |
      | real library | the tests on NVIDIA's own library called it, on a machine with no GPU |
      | GPU | a run on a GPU called it, by the JSON under `docs/evidence/` |
      """;

  /** What the tests called, by where they ran. */
  record Called(Set<String> onStandIn, Set<String> onRealLibraries) {}

  private ApiCoverage() {}

  /** Returns the functions of an include list, in its order. */
  static List<String> functions(String library) throws IOException {
    return Files.readAllLines(Checkout.ROOT.resolve("headers/" + library + ".includes")).stream()
        .filter(line -> line.startsWith(INCLUDED))
        .map(line -> line.substring(INCLUDED.length()).strip())
        .toList();
  }

  /** Returns the names that a run has recorded, one a line. */
  static Set<String> recorded(Path file) throws IOException {
    return new TreeSet<>(Files.readAllLines(file));
  }

  /** Returns what the committed page says that the tests called. */
  static Called committed() throws IOException {
    Set<String> onStandIn = new TreeSet<>();
    Set<String> onRealLibraries = new TreeSet<>();
    for (String line : Files.readAllLines(PAGE)) {
      Matcher row = ROW.matcher(line);
      if (row.matches() && row.group(2).equals("yes")) {
        onStandIn.add(row.group(1));
      }
      if (row.matches() && row.group(3).equals("yes")) {
        onRealLibraries.add(row.group(1));
      }
    }
    return new Called(onStandIn, onRealLibraries);
  }

  /** Writes the page. */
  static String render(Called called) throws IOException {
    SortedMap<String, SortedSet<String>> forms =
        JavaForms.byFunction(JavaForms.mentions(Checkout.ROOT.resolve("src/main/java")));
    SortedMap<String, String> releases = Releases.byFunction();
    Set<String> onGpu = calledOnGpu(EVIDENCE);
    StringBuilder page = new StringBuilder(ABOUT);
    for (String library : List.of("nccl", "cudart")) {
      List<String> functions = functions(library);
      page.append(heading(library, functions, forms.keySet(), called));
      for (String function : functions.stream().sorted().toList()) {
        List<String> cells = new ArrayList<>();
        cells.add("`" + function + "`");
        cells.add(mark(isBound(library, function)));
        cells.add(
            forms.containsKey(function)
                ? forms.get(function).stream()
                    .map(form -> "`" + form + "`")
                    .collect(Collectors.joining(", "))
                : NO_FORM.getOrDefault(function, "-"));
        if (library.equals("nccl")) {
          cells.add(releases.get(function));
        }
        cells.add(mark(called.onStandIn().contains(function)));
        cells.add(mark(called.onRealLibraries().contains(function)));
        cells.add(mark(onGpu.contains(function)));
        page.append("| ").append(String.join(" | ", cells)).append(" |\n");
      }
    }
    return page.toString();
  }

  private static String heading(
      String library, List<String> functions, Set<String> offered, Called called) {
    boolean nccl = library.equals("nccl");
    return "\n## %s: %d functions, %d with a Java form, %d tested on the stand-in, %d on the real library\n\n"
            .formatted(
                nccl ? "NCCL" : "The CUDA runtime",
                functions.size(),
                functions.stream().filter(offered::contains).count(),
                functions.stream().filter(called.onStandIn()::contains).count(),
                functions.stream().filter(called.onRealLibraries()::contains).count())
        + (nccl
            ? "| function | bound | Java form | since | stand-in | real library | GPU |\n|---|---|---|---|---|---|---|\n"
            : "| function | bound | Java form | stand-in | real library | GPU |\n|---|---|---|---|---|---|\n");
  }

  private static String mark(boolean yes) {
    return yes ? "yes" : "-";
  }

  private static boolean isBound(String library, String function) {
    try {
      Class<?> bindings = Class.forName("io.nccl4j.bindings." + library + "." + library + "_h");
      return Stream.of(bindings.getMethods()).anyMatch(method -> method.getName().equals(function));
    } catch (ClassNotFoundException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns what runs on a GPU have called; a run on the stand-in names it, and does not count. */
  static Set<String> calledOnGpu(Path evidence) throws IOException {
    Set<String> called = new TreeSet<>();
    if (!Files.exists(evidence)) {
      return called;
    }
    List<Path> files;
    try (Stream<Path> all = Files.walk(evidence)) {
      files = all.filter(f -> f.toString().endsWith(".json")).sorted().toList();
    }
    for (Path file : files) {
      String text = Files.readString(file);
      Matcher list = CALLED_ON_GPU.matcher(text);
      while (!text.contains("nccl4j stand-in") && list.find()) {
        WORD.matcher(list.group(1)).results().forEach(word -> called.add(word.group()));
      }
    }
    return called;
  }

  static SortedMap<String, String> releasesThatTheJavadocGetsWrong() throws IOException {
    SortedMap<String, String> wrong = new TreeMap<>();
    SortedMap<String, String> releases = Releases.byFunction();
    for (JavaForms.Mention mention : JavaForms.mentions(Checkout.ROOT.resolve("src/main/java"))) {
      String tag = releases.get(mention.function());
      // Javadoc says 2.28 for what came with its first release, 2.28.3.
      if (mention.release() != null
          && tag != null
          && !(tag + ".").startsWith(mention.release() + ".")) {
        wrong.put(mention.member(), mention.function() + " came with " + tag);
      }
    }
    return wrong;
  }
}
