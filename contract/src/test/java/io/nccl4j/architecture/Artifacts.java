package io.nccl4j.architecture;

import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import io.nccl4j.Backend;
import io.nccl4j.fixtures.Checkout;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.training.GradientReducer;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/**
 * The artifacts that programs link: the library, its reference backend and the training package.
 */
final class Artifacts {
  /** Their folders. */
  static final List<Path> FOLDERS =
      Stream.of("", "reference", "training").map(Checkout.ROOT::resolve).toList();

  private Artifacts() {}

  /** Returns their classes. */
  static JavaClasses classes() {
    return new ClassFileImporter()
        .importUrls(
            Stream.of(Backend.class, ReferenceBackend.class, GradientReducer.class)
                .map(type -> type.getProtectionDomain().getCodeSource().getLocation())
                .toList());
  }
}
