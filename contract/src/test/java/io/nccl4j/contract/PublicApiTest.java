package io.nccl4j.contract;

import static com.tngtech.archunit.base.DescribedPredicate.not;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAnyPackage;
import static com.tngtech.archunit.lang.conditions.ArchConditions.dependOnClassesThat;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import io.nccl4j.Backend;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.training.GradientReducer;
import java.lang.module.ModuleDescriptor;
import java.lang.module.ModuleFinder;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/**
 * The suite uses exported packages only. It is on the class path, where the compiler does not check
 * this.
 */
class PublicApiTest {
  @Test
  void suiteUsesExportedPackagesOnly() throws URISyntaxException {
    List<String> allowed = new ArrayList<>(List.of("io.nccl4j.contract", "io.nccl4j.fixtures.."));
    for (Class<?> type : List.of(Backend.class, ReferenceBackend.class, GradientReducer.class)) {
      moduleOf(type).exports().stream()
          .filter(exports -> !exports.isQualified())
          .map(ModuleDescriptor.Exports::source)
          .forEach(allowed::add);
    }
    noClasses()
        .that()
        .resideInAPackage("io.nccl4j.contract")
        .should(
            dependOnClassesThat(
                resideInAPackage("io.nccl4j..")
                    .and(not(resideInAnyPackage(allowed.toArray(String[]::new))))))
        .check(
            new ClassFileImporter()
                .withImportOption(new ImportOption.DoNotIncludeTests())
                .importPackages("io.nccl4j.contract"));
  }

  private static ModuleDescriptor moduleOf(Class<?> type) throws URISyntaxException {
    Path classes = Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI());
    return ModuleFinder.of(classes).findAll().iterator().next().descriptor();
  }
}
