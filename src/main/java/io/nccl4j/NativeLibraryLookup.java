package io.nccl4j;

import java.nio.file.Path;
import java.util.Optional;
import org.jspecify.annotations.NullMarked;

/**
 * Names the files of NVIDIA's libraries, for programs and artifacts that bring or install them
 * themselves. A service: {@link java.util.ServiceLoader} finds it through the class loader of
 * nccl4j, by {@code provides} in a module descriptor or a file {@code
 * META-INF/services/io.nccl4j.NativeLibraryLookup}.
 *
 * {@snippet :
 * public final class BundledLibraries implements NativeLibraryLookup {
 *   @Override
 *   public Optional<Path> find(String library) {
 *     return library.equals("nccl") ? Optional.of(Path.of("/opt/acme/lib/libnccl.so.2")) : Optional.empty();
 *   }
 * }
 * }
 *
 * <p>It is asked when a library is loaded, unless a system property or an environment variable
 * names the library's file, and before the usual places are searched. If there are several
 * services, the first one that names a file decides. As with the property and the variable, the
 * file is final: if it cannot be loaded, nothing else is tried.
 */
@NullMarked
public interface NativeLibraryLookup {
  /**
   * {@return the file of a library, or the folder that contains it; empty to have other places
   * searched} If this method throws, other places are searched too, a warning is logged, and a
   * {@link LibraryNotFoundException} lists the reason among the attempts. It must not use nccl4j.
   *
   * @param library {@code nccl} or {@code cudart}
   */
  Optional<Path> find(String library);
}
