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
import java.lang.reflect.Modifier;
import java.util.List;
import org.junit.jupiter.api.Test;

/**
 * Tests the dependencies between packages: the contract depends on the driver interfaces and the
 * recorder's events, {@code nccl} and {@code cuda} on {@code internal.cuda}, {@code internal.ffm}
 * and the bindings. All packages may use {@code internal.util}.
 */
class ArchitectureTest {
  private static final String CONTRACT = "io.nccl4j";
  private static final String SPI = "io.nccl4j.spi";
  private static final String NCCL = "io.nccl4j.nccl..";
  private static final String PLUGIN = "io.nccl4j.plugin";
  private static final String CUDA = "io.nccl4j.cuda..";
  private static final String RAS = "io.nccl4j.ras";
  private static final String RENDEZVOUS = "io.nccl4j.rendezvous..";
  private static final String FFM = "io.nccl4j.internal.ffm";
  private static final String INTERNAL_CUDA = "io.nccl4j.internal.cuda";
  private static final String JFR = "io.nccl4j.internal.jfr";
  private static final String JMX = "io.nccl4j.internal.jmx";
  private static final String FLIGHT = "io.nccl4j.internal.flight";
  private static final String UTIL = "io.nccl4j.internal.util";
  private static final String AUTH = "io.nccl4j.internal.auth";
  private static final String PROTOCOLS = "io.nccl4j.internal.rendezvous..";
  private static final String BINDINGS = "io.nccl4j.bindings..";
  private static final String[] PLATFORM = {
    "java..", "javax.crypto..", "jdk.jfr", "org.apache.logging.log4j", "org.jspecify.annotations"
  };

  private static final List<Class<?>> FACADES =
      List.of(
          Backend.class, Communicator.class, Event.class, Graph.class, Group.class, Stream.class);

  private static final JavaClasses LIBRARY =
      new ClassFileImporter()
          .withImportOption(new ImportOption.DoNotIncludeTests())
          .importPackages(CONTRACT);

  private static final DescribedPredicate<JavaClass> HAND_WRITTEN =
      resideInAPackage("io.nccl4j..").and(not(resideInAPackage(BINDINGS)));

  @Test
  void rendezvousDependsOnContractProtocolsAndAuth() {
    onlyDepends(RENDEZVOUS, CONTRACT, RENDEZVOUS, PROTOCOLS, AUTH);
    onlyDepends(PROTOCOLS, CONTRACT, PROTOCOLS, AUTH);
  }

  @Test
  void rasDependsOnUtilOnly() {
    onlyDepends(RAS, RAS);
  }

  @Test
  void authDependsOnUtilOnly() {
    onlyDepends(AUTH, AUTH);
  }

  @Test
  void jfrDependsOnUtilOnly() {
    onlyDepends(JFR, JFR);
  }

  @Test
  void onlyJmxDependsOnManagement() {
    noClasses()
        .that()
        .resideOutsideOfPackages(JMX, "io.nccl4j.fixtures..")
        .should()
        .dependOnClassesThat()
        .resideInAnyPackage("java.lang.management..", "javax.management..")
        .check(LIBRARY);
    classes()
        .that()
        .resideInAPackage(JMX)
        .should()
        .onlyDependOnClassesThat(
            resideInAnyPackage(
                JMX, UTIL, "java..", "javax.management..", "org.apache.logging.log4j"))
        .check(LIBRARY);
  }

  @Test
  void flightRecorderDependsOnUtilOnly() {
    onlyDepends(FLIGHT, FLIGHT);
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
                JFR,
                JMX,
                FLIGHT,
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
    onlyDepends(NCCL, CONTRACT, SPI, NCCL, CUDA, INTERNAL_CUDA, FFM, BINDINGS, RAS, PLUGIN);
    onlyDepends(PLUGIN, CONTRACT, PLUGIN, FFM, JFR);
    onlyDepends(CUDA, CONTRACT, SPI, CUDA, INTERNAL_CUDA, FFM, BINDINGS);
    onlyDepends(INTERNAL_CUDA, CONTRACT, SPI, INTERNAL_CUDA, FFM, BINDINGS);
    onlyDepends(FFM, CONTRACT, FFM, JFR, BINDINGS);
    onlyDepends(BINDINGS, BINDINGS);
  }

  @Test
  void onlyNcclPackagesUseBindingsAndInternals() {
    noClasses()
        .that(HAND_WRITTEN.and(not(resideInAnyPackage(NCCL, PLUGIN, CUDA, INTERNAL_CUDA, FFM))))
        .should(dependOnClassesThat(resideInAnyPackage(BINDINGS, INTERNAL_CUDA, FFM)))
        .check(LIBRARY);
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
