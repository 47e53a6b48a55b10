package io.nccl4j.architecture;

import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.classes;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import java.nio.file.Files;
import java.util.List;
import org.jspecify.annotations.NullMarked;
import org.junit.jupiter.api.Test;

/** Tests rules for all classes of the library, its reference backend and the training package. */
class HouseRulesTest {
  private static final JavaClasses LIBRARY = Artifacts.classes();

  private static final DescribedPredicate<JavaClass> HAND_WRITTEN =
      DescribedPredicate.not(resideInAPackage("io.nccl4j.bindings.."));

  @Test
  void publicTypesAreNullMarked() {
    classes()
        .that()
        .resideOutsideOfPackages("..internal..", "..spi..", "..bindings..")
        .and()
        .arePublic()
        .and()
        .areTopLevelClasses()
        .should()
        .beAnnotatedWith(NullMarked.class)
        .check(LIBRARY);
  }

  /** The module system leaves these open, since programs may use the packages. */
  @Test
  void referenceAndTrainingUseNoOtherBackendOrLauncher() {
    noClasses()
        .that()
        .resideInAnyPackage(
            "io.nccl4j.reference..",
            "io.nccl4j.internal.reference..",
            "io.nccl4j.internal.schedule..",
            "io.nccl4j.schedule..",
            "io.nccl4j.training..")
        .should()
        .dependOnClassesThat()
        .resideInAnyPackage("io.nccl4j.nccl..", "io.nccl4j.cuda..", "io.nccl4j.rendezvous..")
        .check(LIBRARY);
  }

  @Test
  void vagueClassNamesAreAbsent() {
    noClasses()
        .that(HAND_WRITTEN)
        .should()
        .haveSimpleNameEndingWith("Impl")
        .orShould()
        .haveSimpleNameEndingWith("Util")
        .orShould()
        .haveSimpleNameEndingWith("Utils")
        .orShould()
        .haveSimpleNameEndingWith("Manager")
        .orShould()
        .haveSimpleNameEndingWith("Helper")
        .check(LIBRARY);
  }

  @Test
  void libraryLogsThroughLog4jOnly() {
    noClasses()
        .that(HAND_WRITTEN)
        .should()
        .dependOnClassesThat()
        .resideInAPackage("java.util.logging..")
        .orShould()
        .accessField(System.class, "out")
        .orShould()
        .accessField(System.class, "err")
        .orShould()
        .callMethod(Throwable.class, "printStackTrace")
        .check(LIBRARY);
  }

  @Test
  void everyPackageHasPackageInfo() {
    List<String> undocumented =
        LIBRARY.stream()
            .filter(HAND_WRITTEN)
            .map(JavaClass::getPackageName)
            .distinct()
            .filter(
                name ->
                    Artifacts.FOLDERS.stream()
                        .map(folder -> folder.resolve("src/main/java"))
                        .map(sources -> sources.resolve(name.replace('.', '/')))
                        .noneMatch(sources -> Files.exists(sources.resolve("package-info.java"))))
            .toList();
    assertEquals(List.of(), undocumented);
  }
}
