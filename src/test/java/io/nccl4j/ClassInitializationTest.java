package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.tngtech.archunit.core.domain.Dependency;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.reference.ReferenceBackend;
import java.lang.reflect.Field;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Tests that opening a backend initializes every class which a first operation would. */
class ClassInitializationTest {
  private static final String PACKAGE = "io.nccl4j.";

  private static final JavaClasses LIBRARY =
      new ClassFileImporter()
          .withImportOption(new ImportOption.DoNotIncludeTests())
          .withImportOption(location -> !location.contains("test-fixtures"))
          .importPackages("io.nccl4j");

  @Test
  void contractListsItsClassesWithInitializers() {
    assertEquals(
        initialized("io.nccl4j", "io.nccl4j.spi", "io.nccl4j.internal.util"),
        new TreeSet<>(ClassInitialization.CONTRACT));
  }

  @Test
  void referenceListsItsClassesWithInitializers() throws Exception {
    assertEquals(
        initialized(
            "io.nccl4j.reference",
            "io.nccl4j.schedule",
            "io.nccl4j.internal.auth",
            "io.nccl4j.internal.reference",
            "io.nccl4j.internal.reference.bootstrap",
            "io.nccl4j.internal.reference.collective",
            "io.nccl4j.internal.reference.rank",
            "io.nccl4j.internal.reference.reduce",
            "io.nccl4j.internal.reference.stream",
            "io.nccl4j.internal.reference.transport"),
        listed(ReferenceBackend.class));
  }

  @Test
  void ncclListsItsClassesWithInitializers() throws Exception {
    Set<String> expected =
        initialized(
            "io.nccl4j.nccl", "io.nccl4j.cuda", "io.nccl4j.internal", "io.nccl4j.internal.cuda");
    expected.addAll(usedBindings());
    assertEquals(expected, listed(NcclBackend.class));
  }

  /** Returns the class names that a backend lists. */
  private static Set<String> listed(Class<?> backend) throws ReflectiveOperationException {
    Field list = backend.getDeclaredField("INITIALIZED");
    list.setAccessible(true);
    Set<String> names = new TreeSet<>();
    ((List<?>) list.get(null)).forEach(name -> names.add((String) name));
    return names;
  }

  /** Returns the top-level classes that have an initializer or a nested class with one. */
  private static Set<String> initialized(String... packages) {
    return LIBRARY.stream()
        .filter(type -> List.of(packages).contains(type.getPackageName()))
        .filter(type -> type.getStaticInitializer().isPresent())
        .map(ClassInitializationTest::outermost)
        .collect(Collectors.toCollection(TreeSet::new));
  }

  /** Returns the generated classes with initializers that the backend uses, and superclasses. */
  private static Set<String> usedBindings() {
    return LIBRARY.stream()
        .filter(type -> !isBinding(type))
        .flatMap(type -> type.getDirectDependenciesFromSelf().stream())
        .map(Dependency::getTargetClass)
        .filter(ClassInitializationTest::isBinding)
        .flatMap(type -> Stream.concat(Stream.of(type), type.getAllRawSuperclasses().stream()))
        .filter(type -> isBinding(type) && type.getStaticInitializer().isPresent())
        .map(ClassInitializationTest::outermost)
        .collect(Collectors.toCollection(TreeSet::new));
  }

  private static boolean isBinding(JavaClass type) {
    return type.getPackageName().startsWith(PACKAGE + "bindings.");
  }

  /** Returns the name of the top-level class relative to {@code io.nccl4j}. */
  private static String outermost(JavaClass type) {
    JavaClass outer = type;
    while (outer.getEnclosingClass().isPresent()) {
      outer = outer.getEnclosingClass().get();
    }
    return outer.getName().substring(PACKAGE.length());
  }
}
