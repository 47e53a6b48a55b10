package io.nccl4j.reference;

import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAnyPackage;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.classes;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import org.junit.jupiter.api.Test;

/** Tests the dependencies between the reference's packages; all may use {@code internal.util}. */
class ArchitectureTest {
  private static final String CONTRACT = "io.nccl4j";
  private static final String SPI = "io.nccl4j.spi";
  private static final String PART = "io.nccl4j.internal.reference.";
  private static final String LAYOUT = "io.nccl4j.schedule";
  private static final String SCHEDULE = "io.nccl4j.internal.schedule";
  private static final String UTIL = "io.nccl4j.internal.util";
  private static final String AUTH = "io.nccl4j.internal.auth";
  private static final String[] PLATFORM = {
    "java..",
    "javax.crypto..",
    "com.sun.management",
    "org.apache.logging.log4j",
    "org.jspecify.annotations"
  };

  private static final JavaClasses REFERENCE =
      new ClassFileImporter()
          .withImportOption(new ImportOption.DoNotIncludeTests())
          .importPackages("io.nccl4j.reference", LAYOUT, SCHEDULE, "io.nccl4j.internal.reference");

  @Test
  void scheduleDependsOnUtilOnly() {
    classes()
        .that()
        .resideInAnyPackage(LAYOUT, SCHEDULE)
        .should()
        .onlyDependOnClassesThat(
            resideInAnyPackage(
                LAYOUT, SCHEDULE, UTIL, "java.lang..", "java.util..", "org.jspecify.annotations"))
        .check(REFERENCE);
  }

  @Test
  void referenceCallsNoNativeCode() {
    noClasses()
        .should()
        .dependOnClassesThat()
        .haveFullyQualifiedName("java.lang.foreign.Linker")
        .orShould()
        .dependOnClassesThat()
        .haveFullyQualifiedName("java.lang.foreign.SymbolLookup")
        .orShould()
        .dependOnClassesThat()
        .resideInAnyPackage("io.nccl4j.nccl", "io.nccl4j.cuda")
        .check(REFERENCE);
  }

  @Test
  void referencePackagesAreLayered() {
    String reduce = PART + "reduce";
    onlyDepends(reduce, CONTRACT, reduce);
    String transport = PART + "transport";
    onlyDepends(transport, CONTRACT, SPI, transport);
    String collective = PART + "collective";
    onlyDepends(collective, CONTRACT, SPI, collective, transport, reduce, LAYOUT, SCHEDULE);
    String bootstrap = PART + "bootstrap";
    onlyDepends(bootstrap, CONTRACT, SPI, bootstrap, transport, AUTH);
    String rank = PART + "rank";
    onlyDepends(rank, CONTRACT, SPI, rank, bootstrap, collective, transport, LAYOUT);
    String stream = PART + "stream";
    onlyDepends(stream, CONTRACT, SPI, stream, rank, collective, reduce);
  }

  private static void onlyDepends(String packages, String... allowed) {
    DescribedPredicate<JavaClass> permitted = resideInAnyPackage(allowed);
    classes()
        .that()
        .resideInAPackage(packages)
        .should()
        .onlyDependOnClassesThat(
            permitted.or(resideInAPackage(UTIL)).or(resideInAnyPackage(PLATFORM)))
        .allowEmptyShould(true)
        .check(REFERENCE);
  }
}
