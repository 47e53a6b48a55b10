package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
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
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
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
    NCCL("nccl", nccl_h.class, 67),
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

  /** What the bindings say of a C expression. */
  private record Fact(String label, String expression, long value) {
    String question() {
      return "  printf(\"%s=%%ld\\n\", (long)(%s));".formatted(label, expression);
    }

    String assertion() {
      return "_Static_assert((%s) == %d, \"%s\");".formatted(expression, value, label);
    }
  }

  @ParameterizedTest
  @EnumSource
  void structSizesAndFieldOffsetsMatchTheHeaders(Library library) throws Exception {
    List<Fact> facts = layoutFacts(library);
    assertEquals(render(facts), render(askCompiler(library, facts)));
  }

  /** Linux on aarch64, such as NVIDIA's Grace; with the headers of the wheels for x86-64. */
  @ParameterizedTest
  @EnumSource
  void structSizesAndFieldOffsetsAreTheSameOnAarch64(Library library) throws Exception {
    String compiler = "aarch64-linux-gnu-gcc";
    Requirement.program(compiler, "REQUIRE_NCCL");
    Path source = temp.resolve("aarch64.c");
    writeSource(library, source, layoutFacts(library).stream().map(Fact::assertion).toList());
    run(compile(compiler, source, "-fsyntax-only"));

    Fact wrong = new Fact("wrong", "sizeof(void *)", 4);
    writeSource(library, source, List.of(wrong.assertion()));
    List<String> command = compile(compiler, source, "-fsyntax-only");
    assertNotEquals(0, new ProcessBuilder(command).start().waitFor());
  }

  private static List<Fact> layoutFacts(Library library) throws Exception {
    List<Fact> facts = new ArrayList<>();
    for (String struct : library.bound("struct")) {
      GroupLayout layout = library.layout(struct);
      String type = cName(struct);
      facts.add(new Fact("sizeof " + struct, "sizeof(" + type + ")", layout.byteSize()));
      facts.add(new Fact("alignof " + struct, "_Alignof(" + type + ")", layout.byteAlignment()));
      for (MemoryLayout member : layout.memberLayouts()) {
        if (member.name().isPresent()) {
          String field = member.name().get();
          String location = struct + "." + field;
          long offset = layout.byteOffset(PathElement.groupElement(field));
          facts.add(new Fact(location, "offsetof(" + type + ", " + field + ")", offset));
          String size = "sizeof(((" + type + " *)0)->" + field + ")";
          facts.add(new Fact("size of " + location, size, member.byteSize()));
        }
      }
    }
    assertTrue(facts.size() > 20, "the structs have fields");
    return facts;
  }

  @ParameterizedTest
  @EnumSource
  void constantsMatchTheHeaders(Library library) throws Exception {
    List<Fact> facts = new ArrayList<>();
    for (String constant : library.bound("constant")) {
      Object value = library.bindings.getMethod(constant).invoke(null);
      if (value instanceof MemorySegment text && text.byteSize() > 0) {
        facts.add(new Fact("sizeof " + constant, "sizeof(" + constant + ")", text.byteSize()));
      } else if (value instanceof MemorySegment pointer) {
        facts.add(new Fact(constant, constant, pointer.address()));
      } else {
        // An unsigned 32-bit value is a negative int in Java.
        String cast = value instanceof Integer ? "(int)" : "";
        facts.add(new Fact(constant, cast + "(" + constant + ")", ((Number) value).longValue()));
      }
    }
    assertTrue(facts.size() > 50, "there are constants");
    assertEquals(render(facts), render(askCompiler(library, facts)));
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

  /** Compiles and runs a program that prints the compiler's values. */
  private List<Fact> askCompiler(Library library, List<Fact> facts) throws Exception {
    Requirement.program("gcc", "REQUIRE_NCCL");
    Path source = temp.resolve(library.label + ".c");
    Path program = temp.resolve(library.label);
    List<String> main = new ArrayList<>(facts.stream().map(Fact::question).toList());
    main.addFirst("int main(void) {");
    main.addLast("}");
    writeSource(library, source, main);
    run(compile("gcc", source, "-o", program.toString()));
    return run(List.of(program.toString()))
        .lines()
        .map(line -> line.split("=", 2))
        .map(answer -> new Fact(answer[0], "", Long.parseLong(answer[1])))
        .toList();
  }

  private static void writeSource(Library library, Path source, List<String> lines)
      throws IOException {
    List<String> all = new ArrayList<>();
    all.add("#include <nccl4j_%s.h>".formatted(library.label));
    all.addAll(List.of("#include <stddef.h>", "#include <stdio.h>"));
    all.addAll(lines);
    Files.write(source, all);
  }

  private static List<String> compile(String compiler, Path source, String... options) {
    List<String> command = new ArrayList<>(List.of(compiler, "-std=c11"));
    command.addAll(List.of(options));
    command.add("-I" + ROOT.resolve("headers"));
    command.add("-isystem" + NVIDIA.resolve("nccl/include"));
    command.add("-isystem" + NVIDIA.resolve("cu13/include"));
    command.add("-isystem" + NVIDIA.resolve("cu13/include/cccl"));
    command.add(source.toString());
    return command;
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
            "nccl/include/nccl_device/core.h",
            "cu13/include/driver_types.h",
            "cu13/include/cuda_runtime_api.h")) {
      if (tag.matcher(Files.readString(NVIDIA.resolve(header))).find()) {
        return "struct " + struct;
      }
    }
    return struct;
  }

  /** Returns one fact per line, so that a failure shows which ones differ. */
  private static String render(List<Fact> facts) {
    return facts.stream()
        .map(fact -> fact.label() + " = " + fact.value())
        .sorted()
        .collect(Collectors.joining("\n"));
  }
}
