package io.nccl4j.snippets;

import io.nccl4j.NativeLibraryLookup;
import java.nio.file.Path;
import java.util.Optional;

public final class BundledLibraries implements NativeLibraryLookup {
  @Override
  public Optional<Path> find(String library) {
    return library.equals("nccl")
        ? Optional.of(Path.of("/opt/acme/lib/libnccl.so.2"))
        : Optional.empty();
  }
}
