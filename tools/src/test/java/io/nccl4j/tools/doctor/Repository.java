package io.nccl4j.tools.doctor;

import java.nio.file.Path;

/** The checkout that the tests run in. */
final class Repository {
  static final Path ROOT = Path.of("").toAbsolutePath().getParent();

  private Repository() {}
}
