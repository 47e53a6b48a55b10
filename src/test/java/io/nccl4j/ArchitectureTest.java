package io.nccl4j;

import static com.tngtech.archunit.base.DescribedPredicate.not;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.assignableTo;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAnyPackage;
import static com.tngtech.archunit.lang.conditions.ArchConditions.dependOnClassesThat;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.classes;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import io.nccl4j.spi.BackendDriver;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.GraphDriver;
import io.nccl4j.spi.StreamDriver;
import java.lang.module.ModuleDescriptor;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.jspecify.annotations.NullMarked;
import org.junit.jupiter.api.Test;

/**
 * Tests the dependencies between packages: the contract depends on the driver interfaces, {@code
 * nccl} and {@code cuda} on {@code internal} and the bindings, the reference on the contract,
 * {@code schedule} and {@code internal.auth} only. All packages may use {@code internal.util}.
 */
class ArchitectureTest {
  private static final String CONTRACT = "io.nccl4j";
  private static final String SPI = "io.nccl4j.spi";
  private static final String NCCL = "io.nccl4j.nccl..";
  private static final String CUDA = "io.nccl4j.cuda..";
  private static final String REFERENCE = "io.nccl4j.reference..";
  private static final String REFERENCE_PARTS = "io.nccl4j.internal.reference..";
  private static final String REFERENCE_PART = "io.nccl4j.internal.reference.";
  private static final String SCHEDULE = "io.nccl4j.schedule..";
  private static final String RENDEZVOUS = "io.nccl4j.rendezvous..";
  private static final String TRAINING = "io.nccl4j.training..";
  private static final String INTERNAL = "io.nccl4j.internal";
  private static final String INTERNAL_CUDA = "io.nccl4j.internal.cuda";
  private static final String UTIL = "io.nccl4j.internal.util";
  private static final String AUTH = "io.nccl4j.internal.auth";
  private static final String PROTOCOLS = "io.nccl4j.internal.rendezvous..";
  private static final String BINDINGS = "io.nccl4j.bindings..";
  private static final String[] PLATFORM = {
    "java..",
    "javax.crypto..",
    "jdk.jfr",
    "com.sun.management",
    "org.apache.logging.log4j",
    "org.jspecify.annotations"
  };

  private static final List<Class<?>> FACADES =
      List.of(
          Backend.class, Communicator.class, Event.class, Graph.class, Group.class, Stream.class);

  private static final JavaClasses LIBRARY =
      new ClassFileImporter()
          .withImportOption(new ImportOption.DoNotIncludeTests())
          .withImportOption(location -> !location.contains("test-fixtures"))
          .importPackages(CONTRACT);

  private static final DescribedPredicate<JavaClass> HAND_WRITTEN =
      resideInAPackage("io.nccl4j..").and(not(resideInAPackage(BINDINGS)));

  @Test
  void publicTypesAreNullMarked() {
    String[] exported =
        Backend.class.getModule().getDescriptor().exports().stream()
            .map(ModuleDescriptor.Exports::source)
            .toArray(String[]::new);
    classes()
        .that()
        .resideInAnyPackage(exported)
        .and()
        .arePublic()
        .and()
        .areTopLevelClasses()
        .should()
        .beAnnotatedWith(NullMarked.class)
        .check(LIBRARY);
  }

  @Test
  void scheduleDependsOnUtilOnly() {
    classes()
        .that()
        .resideInAPackage(SCHEDULE)
        .should()
        .onlyDependOnClassesThat(
            resideInAnyPackage(
                SCHEDULE, UTIL, "java.lang..", "java.util..", "org.jspecify.annotations"))
        .check(LIBRARY);
  }

  @Test
  void referenceDependsOnContractScheduleAndAuth() {
    onlyDepends(REFERENCE, CONTRACT, SPI, REFERENCE, REFERENCE_PARTS, SCHEDULE, AUTH);
    onlyDepends(REFERENCE_PARTS, CONTRACT, SPI, REFERENCE_PARTS, SCHEDULE, AUTH);
    noClasses()
        .that()
        .resideInAnyPackage(REFERENCE, REFERENCE_PARTS)
        .should()
        .dependOnClassesThat()
        .haveFullyQualifiedName("java.lang.foreign.Linker")
        .orShould()
        .dependOnClassesThat()
        .haveFullyQualifiedName("java.lang.foreign.SymbolLookup")
        .because("the reference calls no native code")
        .check(LIBRARY);
  }

  @Test
  void referencePackagesAreLayered() {
    String reduce = REFERENCE_PART + "reduce";
    onlyDepends(reduce, CONTRACT, reduce);
    String transport = REFERENCE_PART + "transport";
    onlyDepends(transport, CONTRACT, SPI, transport);
    String collective = REFERENCE_PART + "collective";
    onlyDepends(collective, CONTRACT, SPI, collective, transport, reduce, SCHEDULE);
    String bootstrap = REFERENCE_PART + "bootstrap";
    onlyDepends(bootstrap, CONTRACT, SPI, bootstrap, transport, AUTH);
    String rank = REFERENCE_PART + "rank";
    onlyDepends(rank, CONTRACT, SPI, rank, bootstrap, collective, transport, SCHEDULE);
    String stream = REFERENCE_PART + "stream";
    onlyDepends(stream, CONTRACT, SPI, stream, rank, collective, reduce);
  }

  @Test
  void rendezvousDependsOnContractProtocolsAndAuth() {
    onlyDepends(RENDEZVOUS, CONTRACT, RENDEZVOUS, PROTOCOLS, AUTH);
    onlyDepends(PROTOCOLS, CONTRACT, PROTOCOLS, AUTH);
  }

  @Test
  void rendezvousProtocolsAreIndependent() {
    for (String protocol : List.of("tcp", "file", "torch")) {
      String own = "io.nccl4j.internal.rendezvous." + protocol;
      onlyDepends(own, CONTRACT, "io.nccl4j.internal.rendezvous", own, AUTH);
    }
    onlyDepends("io.nccl4j.internal.rendezvous", CONTRACT, "io.nccl4j.internal.rendezvous", AUTH);
  }

  @Test
  void authDependsOnUtilOnly() {
    onlyDepends(AUTH, AUTH);
  }

  @Test
  void utilDependsOnNothing() {
    classes()
        .that()
        .resideInAPackage(UTIL)
        .should()
        .onlyDependOnClassesThat(resideInAnyPackage(UTIL, "java..", "org.apache.logging.log4j.."))
        .check(LIBRARY);
  }

  @Test
  void trainingDependsOnContractOnly() {
    onlyDepends(TRAINING, CONTRACT, TRAINING);
  }

  @Test
  void contractRefersToBackendsInOneClass() {
    classes()
        .that()
        .resideInAnyPackage(CONTRACT, SPI)
        .and()
        .doNotHaveFullyQualifiedName(Backends.class.getName())
        .should()
        .onlyDependOnClassesThat(
            resideInAnyPackage(
                CONTRACT,
                SPI,
                UTIL,
                "java..",
                "jdk.jfr",
                "org.apache.logging.log4j",
                "org.jspecify.annotations"))
        .check(LIBRARY);
  }

  @Test
  void facadesAreFinal() {
    for (Class<?> facade : FACADES) {
      assertTrue(Modifier.isFinal(facade.getModifiers()), facade::getName);
    }
  }

  @Test
  void driversDoNotDependOnFacades() {
    DescribedPredicate<JavaClass> driver =
        DescribedPredicate.or(
            assignableTo(BackendDriver.class),
            assignableTo(CommunicatorDriver.class),
            assignableTo(StreamDriver.class),
            assignableTo(EventDriver.class),
            assignableTo(GraphDriver.class));
    noClasses()
        .that(driver)
        .should(
            dependOnClassesThat(
                DescribedPredicate.describe(
                    "delegate to drivers",
                    type -> FACADES.stream().anyMatch(type::isEquivalentTo))))
        .check(LIBRARY);
  }

  @Test
  void ncclPackagesAreLayered() {
    onlyDepends(NCCL, CONTRACT, SPI, NCCL, CUDA, INTERNAL_CUDA, INTERNAL, BINDINGS);
    onlyDepends(CUDA, CONTRACT, SPI, CUDA, INTERNAL_CUDA, INTERNAL, BINDINGS);
    onlyDepends(INTERNAL_CUDA, CONTRACT, SPI, INTERNAL_CUDA, INTERNAL, BINDINGS);
    onlyDepends(INTERNAL, CONTRACT, INTERNAL, BINDINGS);
    onlyDepends(BINDINGS, BINDINGS);
  }

  @Test
  void onlyNcclPackagesUseBindingsAndInternals() {
    noClasses()
        .that(HAND_WRITTEN.and(not(resideInAnyPackage(NCCL, CUDA, INTERNAL_CUDA, INTERNAL))))
        .should(dependOnClassesThat(resideInAnyPackage(BINDINGS, INTERNAL_CUDA, INTERNAL)))
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
    assertTrue(LIBRARY.contain(Communicator.class), "the library's classes were not found");
    Path sources = Path.of(System.getProperty("basedir", "."), "src/main/java");
    List<String> undocumented =
        LIBRARY.stream()
            .filter(HAND_WRITTEN)
            .map(JavaClass::getPackageName)
            .distinct()
            .filter(
                name ->
                    !Files.exists(sources.resolve(name.replace('.', '/') + "/package-info.java")))
            .toList();
    assertTrue(undocumented.isEmpty(), () -> "without package-info: " + undocumented);
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
        .check(LIBRARY);
  }
}
