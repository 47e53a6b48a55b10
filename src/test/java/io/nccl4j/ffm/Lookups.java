package io.nccl4j.ffm;

import io.nccl4j.NativeLibraryLookup;
import java.nio.file.Path;
import java.util.Optional;

/** The services of {@link LibrarySearchTest}. */
public final class Lookups {
  private Lookups() {}

  /** Names the file of libnccl that a system property contains. */
  public static final class Answering implements NativeLibraryLookup {
    @Override
    public Optional<Path> find(String library) {
      return library.equals("nccl")
          ? Optional.of(Path.of(System.getProperty("test.answer")))
          : Optional.empty();
    }
  }

  /** Names nothing. */
  public static final class Silent implements NativeLibraryLookup {
    @Override
    public Optional<Path> find(String library) {
      return Optional.empty();
    }
  }

  /** Fails. */
  public static final class Throwing implements NativeLibraryLookup {
    @Override
    public Optional<Path> find(String library) {
      throw new IllegalStateException("no " + library + " here");
    }
  }
}
