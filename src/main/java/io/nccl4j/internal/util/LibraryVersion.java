package io.nccl4j.internal.util;

import java.util.Objects;

/** The version of nccl4j itself. */
public final class LibraryVersion {
  public static final String UNPACKAGED = "unpackaged";

  private static final String CURRENT = find();

  private LibraryVersion() {}

  public static String current() {
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
