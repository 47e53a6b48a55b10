package io.nccl4j.internal.ffm;

import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.LibraryNotFoundException.Attempt;
import io.nccl4j.NativeLibraryLookup;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.jfr.LibraryEvent;
import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.SequencedMap;
import java.util.ServiceConfigurationError;
import java.util.ServiceLoader;
import java.util.function.Consumer;
import org.apache.logging.log4j.Logger;

/**
 * A native library, which is searched for and loaded once, on first use.
 *
 * <p>The search order is: system property, environment variable, {@link NativeLibraryLookup}, the
 * standard names through the system's loader, the {@code nvidia} wheels of the active Python, the
 * conda prefix, the CUDA home. If one of the first three names a library and it cannot be loaded,
 * nothing else is tried, because a program that requested one library must not run on another. A
 * CUDA runtime that is too new for the driver is skipped, unless its file was named.
 */
public final class NativeLibrary {
  private static final Logger LOG = Loggers.of(NativeLibrary.class);
  // CUDA encodes versions as one number: 12080 is 12.8.
  private static final int MAJOR = 1000;
  private static final int MINOR = 10;

  /** {@code libnccl}. */
  public static final NativeLibrary NCCL =
      new NativeLibrary(
          "nccl",
          List.of("libnccl.so.2", "libnccl.so"),
          List.of("nvidia/nccl/lib"),
          "ncclGetVersion",
          null,
          21800,
          lookup -> nccl_h.SYMBOL_LOOKUP = lookup,
          "Install NCCL 2.18 or later (pip install nvidia-nccl-cu13, or your system's libnccl2), or name the file with"
              + " -Dio.nccl4j.nccl.library=PATH or NCCL4J_NCCL_LIBRARY=PATH.");

  /** {@code libcudart}. */
  public static final NativeLibrary CUDART =
      new NativeLibrary(
          "cudart",
          List.of("libcudart.so.13", "libcudart.so.12", "libcudart.so"),
          List.of("nvidia/cu13/lib", "nvidia/cuda_runtime/lib"),
          "cudaRuntimeGetVersion",
          "cudaDriverGetVersion",
          12000,
          lookup -> cudart_h.SYMBOL_LOOKUP = lookup,
          "Install the CUDA runtime 12 or 13 (pip install nvidia-cuda-runtime, or the CUDA toolkit), or name the file with"
              + " -Dio.nccl4j.cudart.library=PATH or NCCL4J_CUDART_LIBRARY=PATH.");

  private final String label;
  private final List<String> fileNames;
  private final List<String> wheelFolders;
  private final String versionFunction;
  // The function that returns the newest version that can run on this machine, or null.
  private final String limitFunction;
  private final int oldestVersion;
  private final Consumer<SymbolLookup> bindings;
  private final String remedy;
  // What plugins require of the loaded library.
  private final List<Consumer<Loaded>> requirements = new ArrayList<>();
  private volatile Loaded loaded;

  /** A loaded library: its file, and the result of its version function. */
  public record Loaded(Path path, int version) {}

  /**
   * A file of the library on this machine.
   *
   * @param source the place that has it, such as {@code environment variable CONDA_PREFIX}
   * @param path the file, with symbolic links resolved
   * @param fault why the dynamic loader must not open it, or null
   */
  public record Copy(String source, Path path, String fault) {}

  /**
   * A library that the program has named.
   *
   * @param source what names it, such as {@code environment variable NCCL4J_NCCL_LIBRARY}
   * @param value the file, its folder, or a name for the system's loader
   * @param undo what to do with the source to have other places searched
   */
  private record Named(String source, String value, String undo) {
    String remedy() {
      return "The "
          + source
          + " names no library that can be loaded: correct it, or "
          + undo
          + " it to have the usual places searched.";
    }
  }

  private NativeLibrary(
      String label,
      List<String> fileNames,
      List<String> wheelFolders,
      String versionFunction,
      String limitFunction,
      int oldestVersion,
      Consumer<SymbolLookup> bindings,
      String remedy) {
    this.label = label;
    this.fileNames = fileNames;
    this.wheelFolders = wheelFolders;
    this.versionFunction = versionFunction;
    this.limitFunction = limitFunction;
    this.oldestVersion = oldestVersion;
    this.bindings = bindings;
    this.remedy = remedy;
  }

  /**
   * Loads the library, unless it is loaded already. The generated bindings then find its symbols.
   *
   * @throws LibraryNotFoundException if none of the candidates could be loaded
   * @throws io.nccl4j.UnsupportedNcclVersionException if a plugin is installed that the library
   *     cannot use
   */
  public Loaded load() {
    Loaded found = loaded;
    if (found == null) {
      synchronized (this) {
        found = loaded;
        if (found == null) {
          checkNativeAccess();
          boolean loadedBefore = fileNames.stream().anyMatch(DynamicLoader::loaded);
          found = searchAndRecord();
          if (this == NCCL) {
            NcclLog.startIfWanted(loadedBefore);
          }
          LOG.info("{} {} loaded from {}", label, found.version(), found.path());
          for (Consumer<Loaded> requirement : requirements) {
            requirement.accept(found);
          }
          loaded = found;
        }
      }
    }
    return found;
  }

  /**
   * Installs something that this library finds when it is loaded.
   *
   * @param what what is installed, for messages
   * @param requirement throws if the loaded library cannot use it; {@link #load} throws that, too
   * @throws IllegalStateException if this process has loaded the library
   */
  public synchronized void beforeLoad(
      String what, Runnable installation, Consumer<Loaded> requirement) {
    checkNativeAccess();
    if (loaded != null || fileNames.stream().anyMatch(DynamicLoader::loaded)) {
      throw new IllegalStateException(
          what
              + " must be installed before "
              + fileNames.getFirst()
              + " is loaded, but this process has loaded it");
    }
    installation.run();
    requirements.add(requirement);
  }

  /** Checks native access with a minimal restricted call, to explain what to do if it is denied. */
  @SuppressWarnings("restricted") // On purpose.
  private static void checkNativeAccess() {
    try {
      MemorySegment.NULL.reinterpret(0);
    } catch (IllegalCallerException e) {
      Module module = NativeLibrary.class.getModule();
      String name = module.isNamed() ? module.getName() : "ALL-UNNAMED";
      IllegalCallerException denied =
          new IllegalCallerException(
              "nccl4j may not call native code; start Java with --enable-native-access=" + name);
      denied.initCause(e);
      throw denied;
    }
  }

  /** Returns whether a system property or environment variable names this library's file. */
  public boolean named() {
    return set(System.getProperty(property())) || set(System.getenv(variable()));
  }

  private static boolean set(String value) {
    return value != null && !value.isBlank();
  }

  /** Returns the short name, such as {@code nccl}. */
  public String label() {
    return label;
  }

  /** Returns the system property that names the library's file. */
  public String property() {
    return "io.nccl4j." + label + ".library";
  }

  /** Returns the environment variable that names the library's file. */
  public String variable() {
    return "NCCL4J_" + label.toUpperCase(Locale.ROOT) + "_LIBRARY";
  }

  /**
   * Returns the library's files in every place that is searched, in the order of the search and
   * without repetitions. Nothing is loaded, and a named file does not end the search.
   *
   * @throws IOException if a folder or the loader's cache cannot be read
   */
  public List<Copy> copies() throws IOException {
    SequencedMap<Path, Copy> copies = new LinkedHashMap<>();
    Optional<Named> named = findNamed(new ArrayList<>());
    if (named.isPresent()) {
      for (Path file : namedFiles(named.get().value())) {
        addCopy(named.get().source(), file, copies);
      }
    }
    for (String name : fileNames) {
      for (Path file : LibraryFolders.systemFiles(name)) {
        addCopy("system loader", file, copies);
      }
    }
    for (LibraryFolders.SearchFolder folder : LibraryFolders.folders(wheelFolders)) {
      for (String name : folder.folder() == null ? List.<String>of() : fileNames) {
        addCopy(folder.source(), folder.folder().resolve(name), copies);
      }
    }
    return List.copyOf(copies.values());
  }

  /** Returns what names the file of this library, if anything does. */
  private Optional<Named> findNamed(List<Attempt> attempts) {
    String property = System.getProperty(property());
    if (set(property)) {
      return Optional.of(new Named("system property " + property(), property, "unset"));
    }
    String variable = System.getenv(variable());
    if (set(variable)) {
      return Optional.of(new Named("environment variable " + variable(), variable, "unset"));
    }
    return lookedUp(attempts);
  }

  /** Asks the services; those that fail are added to the attempts. */
  private Optional<Named> lookedUp(List<Attempt> attempts) {
    try {
      for (NativeLibraryLookup lookup :
          ServiceLoader.load(NativeLibraryLookup.class, NativeLibrary.class.getClassLoader())) {
        String source = "service " + lookup.getClass().getName();
        try {
          Optional<Path> file = lookup.find(label);
          if (file.isPresent()) {
            return Optional.of(new Named(source, file.get().toString(), "remove"));
          }
        } catch (RuntimeException | LinkageError failure) {
          addFailure(source, failure, attempts);
        }
      }
    } catch (ServiceConfigurationError failure) {
      addFailure("services", failure, attempts);
    }
    return Optional.empty();
  }

  private void addFailure(String source, Throwable failure, List<Attempt> attempts) {
    LOG.warn("{} could not look up {}", source, label, failure);
    attempts.add(new Attempt(source, "-", "threw " + failure, false));
  }

  private List<Path> namedFiles(String value) throws IOException {
    try {
      Path path = Path.of(value);
      if (Files.isDirectory(path)) {
        return fileNames.stream().map(path.toAbsolutePath()::resolve).toList();
      }
      return value.contains("/")
          ? List.of(path.toAbsolutePath())
          : LibraryFolders.systemFiles(value);
    } catch (InvalidPathException e) {
      // The search names it among its attempts.
      return List.of();
    }
  }

  private static void addCopy(String source, Path file, SequencedMap<Path, Copy> copies)
      throws IOException {
    if (Files.isRegularFile(file)) {
      Path path = file.toRealPath();
      Copy copy = new Copy(source, path, fault(file));
      Copy earlier = copies.get(path);
      // A file that is refused in one place may be loaded from another.
      if (earlier == null || (earlier.fault() != null && copy.fault() == null)) {
        copies.putLast(path, copy);
      }
    }
  }

  private Loaded searchAndRecord() {
    LibraryEvent event = new LibraryEvent();
    event.library = label;
    event.begin();
    try {
      Loaded found = search();
      event.version = found.version();
      event.path = found.path().toString();
      return found;
    } catch (LibraryNotFoundException notFound) {
      event.error = notFound.getMessage();
      throw notFound;
    } finally {
      event.commit();
    }
  }

  private Loaded search() {
    List<Attempt> attempts = new ArrayList<>();
    Optional<Named> named = findNamed(attempts);
    if (named.isPresent()) {
      return orThrow(tryNamed(named.get(), attempts), attempts, named.get().remedy());
    }
    Loaded found = null;
    for (String name : fileNames) {
      found = found == null ? trySystem("system loader", name, true, attempts) : found;
    }
    for (LibraryFolders.SearchFolder folder :
        found == null
            ? LibraryFolders.folders(wheelFolders)
            : List.<LibraryFolders.SearchFolder>of()) {
      found = found == null ? tryFolder(folder, attempts) : found;
    }
    return orThrow(found, attempts, remedy);
  }

  private Loaded orThrow(Loaded found, List<Attempt> attempts, String remedy) {
    if (found == null) {
      throw new LibraryNotFoundException(label, attempts, remedy);
    }
    return found;
  }

  private Loaded tryNamed(Named named, List<Attempt> attempts) {
    String source = named.source();
    String value = named.value();
    try {
      Path path = Path.of(value);
      if (Files.isDirectory(path)) {
        return tryFolder(new LibraryFolders.SearchFolder(source, path, ""), attempts);
      }
      return value.contains("/")
          ? tryFile(source, path.toAbsolutePath(), false, attempts)
          : trySystem(source, value, false, attempts);
    } catch (InvalidPathException e) {
      attempts.add(new Attempt(source, "-", LibraryFolders.unnamable(e), false));
      return null;
    }
  }

  /** Tries a name that the system's loader knows. Its files are checked before it opens them. */
  private Loaded trySystem(
      String source, String name, boolean replaceable, List<Attempt> attempts) {
    if (DynamicLoader.loaded(name)) {
      return tryLoad(source, name, replaceable, attempts);
    }
    List<Path> files;
    try {
      files = LibraryFolders.systemFiles(name);
    } catch (IOException e) {
      attempts.add(new Attempt(source, name, "the loader's cache cannot be read: " + e, false));
      return null;
    }
    for (Path file : files) {
      if (withoutFault(source, file, attempts)) {
        return tryLoad(source, file.toString(), replaceable, attempts);
      }
    }
    return files.isEmpty() ? tryLoad(source, name, replaceable, attempts) : null;
  }

  private Loaded tryFile(String source, Path file, boolean replaceable, List<Attempt> attempts) {
    return withoutFault(source, file, attempts)
        ? tryLoad(source, file.toString(), replaceable, attempts)
        : null;
  }

  private static boolean withoutFault(String source, Path file, List<Attempt> attempts) {
    String fault = fault(file);
    if (fault != null) {
      attempts.add(new Attempt(source, file.toString(), fault, true));
    }
    return fault == null;
  }

  /** Returns why the dynamic loader must not open a file, or null. */
  private static String fault(Path file) {
    return file.isAbsolute()
        ? ElfFile.fault(file)
        : "is in the current directory, because LD_LIBRARY_PATH has an empty or relative entry";
  }

  private Loaded tryFolder(LibraryFolders.SearchFolder folder, List<Attempt> attempts) {
    if (folder.folder() == null) {
      attempts.add(new Attempt(folder.source(), "-", folder.missing(), false));
      return null;
    }
    boolean any = false;
    Loaded found = null;
    for (String name : fileNames) {
      Path file = folder.folder().resolve(name);
      if (found == null && Files.exists(file, LinkOption.NOFOLLOW_LINKS)) {
        any = true;
        found = tryFile(folder.source(), file.toAbsolutePath(), true, attempts);
      }
    }
    if (!any) {
      String names = String.join(", ", fileNames);
      attempts.add(
          new Attempt(folder.source(), folder.folder().toString(), "has no " + names, false));
    }
    return found;
  }

  private Loaded tryLoad(String source, String name, boolean replaceable, List<Attempt> attempts) {
    boolean exists = name.startsWith("/") && Files.exists(Path.of(name), LinkOption.NOFOLLOW_LINKS);
    try {
      MemorySegment library = DynamicLoader.open(name);
      exists = true;
      MemorySegment function = DynamicLoader.symbol(library, versionFunction);
      int version = version(function);
      String unusable =
          version < oldestVersion
              ? "has version " + version + "; at least " + oldestVersion + " is needed"
              : replaceable ? tooNew(library, version) : null;
      if (unusable != null) {
        throw new DynamicLoader.LoadException(unusable);
      }
      Path path = Path.of(DynamicLoader.pathOf(function)).toRealPath();
      bindings.accept(DynamicLoader.lookup(library));
      return new Loaded(path, version);
    } catch (InvalidPathException e) {
      attempts.add(new Attempt(source, name, LibraryFolders.unnamable(e), exists));
      return null;
    } catch (DynamicLoader.LoadException | IOException e) {
      attempts.add(new Attempt(source, name, e.getMessage(), exists));
      return null;
    }
  }

  /**
   * Returns why the driver cannot run the library, or null. A driver supports every minor release
   * of its own major release. Without a driver there is nothing to check.
   */
  private String tooNew(MemorySegment library, int version) throws DynamicLoader.LoadException {
    if (limitFunction == null) {
      return null;
    }
    int limit = version(DynamicLoader.symbol(library, limitFunction));
    return limit == 0 || version / MAJOR <= limit / MAJOR
        ? null
        : "is of CUDA " + cuda(version) + "; the driver runs CUDA " + cuda(limit);
  }

  private static String cuda(int version) {
    return version / MAJOR + "." + version % MAJOR / MINOR;
  }

  @SuppressWarnings(
      "restricted") // The version must be checked before the bindings use the library.
  private static int version(MemorySegment function) throws DynamicLoader.LoadException {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment version = arena.allocate(ValueLayout.JAVA_INT);
      int result =
          (int)
              Linker.nativeLinker()
                  .downcallHandle(
                      function, FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS))
                  .invokeExact(version);
      if (result != 0) {
        throw new DynamicLoader.LoadException("its version function returned " + result);
      }
      return version.get(ValueLayout.JAVA_INT, 0);
    } catch (DynamicLoader.LoadException | RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("a downcall throws no checked exception", e);
    }
  }
}
