package io.nccl4j.contract;

import static com.tngtech.archunit.base.DescribedPredicate.not;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAnyPackage;
import static com.tngtech.archunit.lang.conditions.ArchConditions.dependOnClassesThat;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import io.nccl4j.Backend;
import java.lang.module.ModuleDescriptor;
import java.lang.module.ModuleFinder;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * The suite uses exported packages only. It is on the class path, where the compiler does not check
 * this.
 */
class PublicApiTest {
  @Test
  void suiteUsesExportedPackagesOnly() throws URISyntaxException {
    String[] allowed =
        Stream.concat(
                Stream.of("io.nccl4j.contract", "io.nccl4j.fixtures.."),
                library().exports().stream().map(ModuleDescriptor.Exports::source))
            .toArray(String[]::new);
    noClasses()
        .that()
        .resideInAPackage("io.nccl4j.contract")
        .should(
            dependOnClassesThat(
                resideInAPackage("io.nccl4j..").and(not(resideInAnyPackage(allowed)))))
        .check(
            new ClassFileImporter()
                .withImportOption(new ImportOption.DoNotIncludeTests())
                .importPackages("io.nccl4j.contract"));
  }

  private static ModuleDescriptor library() throws URISyntaxException {
    Path classes =
        Path.of(Backend.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    return ModuleFinder.of(classes).find("io.nccl4j").orElseThrow().descriptor();
  }
}
