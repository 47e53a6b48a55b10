package io.nccl4j.plugin;

import io.nccl4j.internal.ffm.NativeEnvironment;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.SequencedMap;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.regex.Pattern;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * Variables for NCCL that are not in the process's environment, and the names of all variables that
 * NCCL asks for. An environment plugin of NCCL 2.28.7 and later ({@code ncclEnvPlugin_v2}, {@code
 * ncclEnvPlugin_v1}).
 *
 * {@snippet :
 * NcclEnvironment environment = new NcclEnvironment().set("NCCL_MAX_CTAS", 8);
 * environment.install();
 * }
 *
 * <p>A variable that is set here hides that of the process; all others are those of the process.
 * The only change to the environment of the process is {@code NCCL_ENV_PLUGIN}. NCCL's RAS is off
 * ({@code NCCL_RAS_ENABLE=0}), since {@link System#exit} would hang with it. Thread-safe.
 */
@NullMarked
public final class NcclEnvironment {
  private static final Pattern NAME = Pattern.compile("NCCL_[A-Z0-9_]+");

  // NCCL reads them with getenv, before it has a plugin.
  private static final Set<String> EARLIER =
      Set.of(
          "NCCL_CONF_FILE",
          "NCCL_DEBUG",
          "NCCL_DEBUG_FILE",
          "NCCL_DEBUG_SUBSYS",
          "NCCL_DEBUG_TIMESTAMP_FORMAT",
          "NCCL_DEBUG_TIMESTAMP_LEVELS",
          "NCCL_ENV_PLUGIN",
          "NCCL_WARN_ENABLE_DEBUG_INFO");

  // NCCL's RAS thread asks for variables, which attaches it to Java until it ends, and it ends when
  // an exit handler of NCCL waits for it: after Java has stopped, when no thread can detach.
  private static final String RAS = "NCCL_RAS_ENABLE";

  private static volatile @Nullable NcclEnvironment installed;

  // C strings, valid for the rest of the process.
  private final Map<String, MemorySegment> values = new HashMap<>();
  private final Set<String> asked = new ConcurrentSkipListSet<>();
  private boolean fixed;
  private volatile @Nullable String ncclVersion;

  /** Creates an environment that is equal to that of the process. */
  public NcclEnvironment() {}

  /**
   * Sets a variable.
   *
   * @param name the name, which begins with {@code NCCL_}
   * @param value the value that NCCL gets
   * @return this environment
   * @throws IllegalArgumentException if the name is no name of a variable of NCCL, if NCCL reads
   *     that variable before it has a plugin, such as {@code NCCL_DEBUG}, or if the value has a NUL
   * @throws IllegalStateException if this environment is installed
   */
  public synchronized NcclEnvironment set(String name, String value) {
    Objects.requireNonNull(value, "value");
    if (!NAME.matcher(name).matches()) {
      throw new IllegalArgumentException(
          "name is '" + name + "'; it must be NCCL_ and capital letters, digits or _");
    }
    if (EARLIER.contains(name)) {
      throw new IllegalArgumentException(
          "name is " + name + ", which NCCL reads before it has a plugin; set it for the process");
    }
    if (name.equals(RAS)) {
      throw new IllegalArgumentException(
          "name is " + name + ", which is 0 here: with NCCL's RAS, System.exit would hang");
    }
    if (value.indexOf('\0') >= 0) {
      throw new IllegalArgumentException("value of " + name + " must not contain NUL");
    }
    checkNotInstalled();
    values.put(name, Arena.global().allocateFrom(value));
    return this;
  }

  /**
   * Sets a variable to a number, like {@link #set(String, String)}.
   *
   * @param name the name of the variable
   * @param value its value
   * @return this environment
   */
  public NcclEnvironment set(String name, long value) {
    return set(name, Long.toString(value));
  }

  /**
   * Sets a variable to 1 or 0, like {@link #set(String, String)}.
   *
   * @param name the name of the variable
   * @param value its value
   * @return this environment
   */
  public NcclEnvironment set(String name, boolean value) {
    return set(name, value ? 1 : 0);
  }

  private void checkNotInstalled() {
    if (fixed) {
      throw new IllegalStateException("this NcclEnvironment is installed; NCCL reads it once");
    }
  }

  /**
   * Gives this environment to NCCL, which uses it from its first call on. If the NCCL that is
   * loaded then is older than 2.28.7, loading fails with {@link
   * io.nccl4j.UnsupportedNcclVersionException}.
   *
   * @throws IllegalStateException if NCCL is loaded, if an environment is installed, or if {@code
   *     NCCL_ENV_PLUGIN} names another plugin
   */
  public synchronized void install() {
    checkNotInstalled();
    for (String variable : values.keySet()) {
      if (PluginFile.installed(variable)) {
        throw new IllegalStateException(
            "this NcclEnvironment sets " + variable + ", but that plugin is installed by nccl4j");
      }
    }
    values.put(RAS, Arena.global().allocateFrom("0"));
    PluginFile.install("an NcclEnvironment", "NCCL_ENV_PLUGIN", 22807, this::tables);
    fixed = true;
    installed = this;
  }

  /**
   * {@return whether an environment is installed in this process, so that NCCL's RAS service is
   * off}
   */
  public static boolean isInstalled() {
    return installed != null;
  }

  /**
   * {@return the value of a variable for NCCL: that of the installed environment, or else of this
   * process's environment as C code sees it, to which NCCL adds its configuration files}
   *
   * @param variable the name, such as {@code NCCL_ALGO}
   */
  public static Optional<String> value(String variable) {
    NcclEnvironment environment = installed;
    MemorySegment given = environment == null ? null : environment.values.get(variable);
    return given == null ? NativeEnvironment.get(variable) : Optional.of(given.getString(0));
  }

  /** {@return the names of the variables that NCCL has asked for, in alphabetical order} */
  public SortedSet<String> asked() {
    return Collections.unmodifiableSortedSet(new TreeSet<>(asked));
  }

  /** {@return the version that NCCL gave, such as 2.30.7, once it has read this environment} */
  public Optional<String> ncclVersion() {
    return Optional.ofNullable(ncclVersion);
  }

  private SequencedMap<String, List<MemorySegment>> tables() {
    MethodHandles.Lookup lookup = MethodHandles.lookup();
    ValueLayout.OfByte number = ValueLayout.JAVA_BYTE;
    MemorySegment name = Arena.global().allocateFrom("nccl4j");
    FunctionDescriptor init =
        FunctionDescriptor.of(ValueLayout.JAVA_INT, number, number, number, Upcalls.TEXT);
    // NCCL would call it from an exit handler, when no Java can run any more.
    MemorySegment noFinalize = MemorySegment.NULL;
    MemorySegment getEnv =
        Upcalls.stub(
            lookup, this, "getEnv", FunctionDescriptor.of(ValueLayout.ADDRESS, Upcalls.TEXT));
    SequencedMap<String, List<MemorySegment>> tables = new LinkedHashMap<>();
    tables.put(
        "ncclEnvPlugin_v2",
        List.of(
            name,
            Upcalls.stub(lookup, this, "init", init.appendArgumentLayouts(ValueLayout.ADDRESS)),
            noFinalize,
            getEnv));
    tables.put(
        "ncclEnvPlugin_v1",
        List.of(name, Upcalls.stub(lookup, this, "init", init), noFinalize, getEnv));
    return tables;
  }

  int init(byte major, byte minor, byte patch, MemorySegment suffix, MemorySegment logger) {
    return init(major, minor, patch, suffix);
  }

  int init(byte major, byte minor, byte patch, MemorySegment suffix) {
    ncclVersion =
        Byte.toUnsignedInt(major)
            + "."
            + Byte.toUnsignedInt(minor)
            + "."
            + Byte.toUnsignedInt(patch)
            + Upcalls.text(suffix);
    return Upcalls.SUCCESS;
  }

  MemorySegment getEnv(MemorySegment pointer) {
    String name = pointer.getString(0);
    asked.add(name);
    MemorySegment value = values.get(name);
    return value == null ? NativeEnvironment.find(pointer) : value;
  }
}
