package io.nccl4j;

import io.nccl4j.internal.util.LibraryVersion;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.spi.BackendProvider;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.function.Function;

/** Opens the backends; the only class of this package that depends on them. */
final class Backends {
  private Backends() {}

  static Backend nccl() {
    return NcclBackend.open();
  }

  static Backend ncclOr(Function<String, Backend> fallback) {
    return NcclBackend.openOr(fallback);
  }

  /**
   * Opens the reference backend.
   *
   * @param reason why NCCL is not used, or an empty text
   */
  static Backend reference(int devices, String reason) {
    return provider().orElseThrow(() -> new IllegalStateException(missing(reason))).open(devices);
  }

  /** Returns whether the reference backend created an id; else NCCL did. */
  static boolean madeByReference(UniqueId id) {
    byte[] prefix = BackendProvider.ID_PREFIX.getBytes(StandardCharsets.US_ASCII);
    return Arrays.equals(prefix, Arrays.copyOf(id.toBytes(), prefix.length));
  }

  /** Returns the process whose reference backend created an id. */
  static String referenceMakerOf(UniqueId id) {
    return provider().map(provider -> provider.makerOf(id)).orElse("another process");
  }

  private static Optional<BackendProvider> provider() {
    try {
      return ServiceLoader.load(BackendProvider.class, Backends.class.getClassLoader()).findFirst();
    } catch (IllegalAccessError e) {
      throw new IllegalStateException(
          "nccl4j-reference is on the class path, but nccl4j is on the module path; put both on the"
              + " same path",
          e);
    }
  }

  private static String missing(String reason) {
    String version = LibraryVersion.current();
    return (reason.isEmpty() ? "" : "NCCL cannot be used: " + reason + "\n")
        + """
        The reference backend is not on the class path or module path. Add this dependency:
          <dependency>
            <groupId>io.github.nccl4j</groupId>
            <artifactId>nccl4j-reference</artifactId>%s
            <scope>runtime</scope>
          </dependency>"""
            .formatted(
                version.equals(LibraryVersion.UNPACKAGED)
                    ? ""
                    : "\n    <version>" + version + "</version>");
  }
}
