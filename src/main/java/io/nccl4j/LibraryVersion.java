package io.nccl4j;

import java.util.Objects;

/** The version of nccl4j itself. */
final class LibraryVersion {
  static final String UNPACKAGED = "unpackaged";

  private static final String CURRENT = find();

  private LibraryVersion() {}

  static String current() {
    return CURRENT;
  }

  private static String find() {
    Module module = LibraryVersion.class.getModule();
    String fromModule = module.isNamed() ? module.getDescriptor().rawVersion().orElse(null) : null;
    String fromManifest = LibraryVersion.class.getPackage().getImplementationVersion();
    return Objects.requireNonNullElse(
        fromModule, Objects.requireNonNullElse(fromManifest, UNPACKAGED));
  }
}
