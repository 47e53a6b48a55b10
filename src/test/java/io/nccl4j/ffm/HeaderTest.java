package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.fixtures.libraries.OnRealLibraries;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.GroupLayout;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Compares the generated bindings with the C compiler's view of NVIDIA's headers: the size of every
 * struct, the offset of every field, the value of every constant. Also checks that NVIDIA's
 * libraries export every bound function.
 */
@OnRealLibraries
class HeaderTest {
  private static final Path ROOT = Path.of(System.getProperty("basedir", "."));
  private static final Path NVIDIA = ROOT.resolve("target/native/nvidia");

  /** One of the two bound libraries. */
  enum Library {
    NCCL("nccl", nccl_h.class, 64),
    CUDART("cudart", cudart_h.class, 57);

    final String label;
    final Class<?> bindings;
    final int functions;

    Library(String label, Class<?> bindings, int functions) {
      this.label = label;
      this.bindings = bindings;
      this.functions = functions;
    }

    /** Returns the included names of one kind: {@code function}, {@code struct}, ... */
    List<String> bound(String kind) throws IOException {
      String option = "--include-" + kind + " ";
      return Files.readAllLines(ROOT.resolve("headers/" + label + ".includes")).stream()
          .filter(line -> line.startsWith(option))
          .map(line -> line.substring(option.length()).strip())
          .toList();
    }

    Class<?> binding(String name) throws ClassNotFoundException {
      return Class.forName(bindings.getPackageName() + "." + name);
    }

    GroupLayout layout(String struct) throws ReflectiveOperationException {
      return (GroupLayout) binding(struct).getMethod("layout").invoke(null);
    }
  }

  @TempDir private Path temp;

  @ParameterizedTest
  @EnumSource
  void structSizesAndFieldOffsetsMatchTheHeaders(Library library) throws Exception {
    Map<String, Long> java = new LinkedHashMap<>();
    List<String> questions = new ArrayList<>();
    for (String struct : library.bound("struct")) {
      GroupLayout layout = library.layout(struct);
      String type = cName(struct);
      java.put("sizeof " + struct, layout.byteSize());
      questions.add(question("sizeof " + struct, "sizeof(" + type + ")"));
      java.put("alignof " + struct, layout.byteAlignment());
      questions.add(question("alignof " + struct, "_Alignof(" + type + ")"));
      for (MemoryLayout member : layout.memberLayouts()) {
        if (member.name().isPresent()) {
          String field = member.name().get();
          String location = struct + "." + field;
          java.put(location, layout.byteOffset(PathElement.groupElement(field)));
          questions.add(question(location, "offsetof(" + type + ", " + field + ")"));
          java.put("size of " + location, member.byteSize());
          String value = "sizeof(((" + type + " *)0)->" + field + ")";
          questions.add(question("size of " + location, value));
        }
      }
    }
    assertTrue(java.size() > 20, "the structs have fields");
    assertEquals(render(java), render(askCompiler(library, questions)));
  }

  @ParameterizedTest
  @EnumSource
  void constantsMatchTheHeaders(Library library) throws Exception {
    Map<String, Long> java = new LinkedHashMap<>();
    List<String> questions = new ArrayList<>();
    for (String constant : library.bound("constant")) {
      Object value = library.bindings.getMethod(constant).invoke(null);
      if (value instanceof MemorySegment text && text.byteSize() > 0) {
        java.put("sizeof " + constant, text.byteSize());
        questions.add(question("sizeof " + constant, "sizeof(" + constant + ")"));
      } else if (value instanceof MemorySegment pointer) {
        java.put(constant, pointer.address());
        questions.add(question(constant, constant));
      } else {
        java.put(constant, ((Number) value).longValue());
        // An unsigned 32-bit value is a negative int in Java.
        questions.add(
            question(constant, (value instanceof Integer ? "(int)" : "") + "(" + constant + ")"));
      }
    }
    assertTrue(java.size() > 50, "there are constants");
    assertEquals(render(java), render(askCompiler(library, questions)));
  }

  @ParameterizedTest
  @EnumSource
  @SuppressWarnings("restricted") // The symbols are looked up without nccl4j.
  void boundFunctionsAreExported(Library library) throws Exception {
    List<String> functions = library.bound("function");
    assertEquals(library.functions, functions.size());
    try (Arena arena = Arena.ofConfined()) {
      SymbolLookup symbols = SymbolLookup.libraryLookup(Requirement.library(library.label), arena);
      assertEquals(List.of(), functions.stream().filter(f -> symbols.find(f).isEmpty()).toList());
    }
    NativeLibrary.NCCL.load();
    NativeLibrary.CUDART.load();
    for (String function : functions) {
      library.bindings.getMethod(function + "$descriptor").invoke(null);
    }
  }

  private static String question(String label, String expression) {
    return "  printf(\"%s=%%ld\\n\", (long)(%s));".formatted(label, expression);
  }

  /** Compiles and runs a program that prints the answers. */
  private Map<String, Long> askCompiler(Library library, List<String> questions) throws Exception {
    Requirement.program("gcc", "REQUIRE_NCCL");
    Path source = temp.resolve(library.label + ".c");
    Path program = temp.resolve(library.label);
    Files.writeString(
        source,
        "#include <nccl4j_%s.h>\n#include <stddef.h>\n#include <stdio.h>\n\nint main(void) {\n"
                .formatted(library.label)
            + String.join("\n", questions)
            + "\n}\n");
    List<String> command = new ArrayList<>(List.of("gcc", "-std=c11", "-o", program.toString()));
    command.add("-I" + ROOT.resolve("headers"));
    command.add("-isystem" + NVIDIA.resolve("nccl/include"));
    command.add("-isystem" + NVIDIA.resolve("cu13/include"));
    command.add("-isystem" + NVIDIA.resolve("cu13/include/cccl"));
    command.add(source.toString());
    run(command);
    Map<String, Long> answers = new LinkedHashMap<>();
    run(List.of(program.toString()))
        .lines()
        .forEach(
            line -> {
              int equals = line.lastIndexOf('=');
              answers.put(line.substring(0, equals), Long.valueOf(line.substring(equals + 1)));
            });
    return answers;
  }

  private static String run(List<String> command) throws Exception {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), () -> String.join(" ", command) + "\n" + output);
    return output;
  }

  /** Returns the C type: some structs have only a tag, some only a typedef name. */
  private static String cName(String struct) throws IOException {
    Pattern tag = Pattern.compile("struct\\s+(__\\w+__\\s+|CUDART_CB\\s+)*" + struct + "\\b");
    for (String header :
        List.of(
            "nccl/include/nccl.h",
            "cu13/include/driver_types.h",
            "cu13/include/cuda_runtime_api.h")) {
      if (tag.matcher(Files.readString(NVIDIA.resolve(header))).find()) {
        return "struct " + struct;
      }
    }
    return struct;
  }

  /** Returns one fact per line, so that a failure shows which ones differ. */
  private static String render(Map<String, Long> facts) {
    StringBuilder text = new StringBuilder();
    new TreeMap<>(facts)
        .forEach((fact, value) -> text.append(fact).append(" = ").append(value).append('\n'));
    return text.toString();
  }
}
