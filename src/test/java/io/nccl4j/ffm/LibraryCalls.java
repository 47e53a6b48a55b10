package io.nccl4j.ffm;

import io.nccl4j.Backend;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.classfile.ClassFile;
import java.lang.classfile.ClassModel;
import java.lang.classfile.constantpool.MemberRefEntry;
import java.lang.classfile.constantpool.PoolEntry;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.stream.Stream;

/** Lists the bound functions that nccl4j calls, read from its class files. */
final class LibraryCalls {
  private LibraryCalls() {}

  /** Returns the functions of one generated class that nccl4j's classes refer to. */
  static SortedSet<String> to(Class<?> bindings) {
    SortedSet<String> functions = new TreeSet<>();
    for (Path file : classFiles()) {
      for (PoolEntry entry : parse(file).constantPool()) {
        if (entry instanceof MemberRefEntry member
            && member.owner().asInternalName().equals(bindings.getName().replace('.', '/'))) {
          // Each function also has members such as function$handle and function$address.
          functions.add(member.name().stringValue().replaceFirst("\\$.*", ""));
        }
      }
    }
    return functions;
  }

  private static ClassModel parse(Path file) {
    try {
      return ClassFile.of().parse(file);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static List<Path> classFiles() {
    try {
      URI classes = Backend.class.getProtectionDomain().getCodeSource().getLocation().toURI();
      try (Stream<Path> files = Files.walk(Path.of(classes).resolve("io/nccl4j"))) {
        return files
            .filter(f -> f.toString().endsWith(".class") && !f.toString().contains("/bindings/"))
            .toList();
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (URISyntaxException e) {
      throw new IllegalStateException(e);
    }
  }
}
