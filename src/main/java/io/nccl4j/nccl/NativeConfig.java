package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.ncclConfig_t;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.ffm.NativeEnvironment;
import io.nccl4j.internal.util.Loggers;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.logging.log4j.Logger;

/**
 * Converts a {@link NcclConfig} to an {@code ncclConfig_t}, and checks that the loaded library
 * supports its settings: the library copies only the part of the struct that it knows.
 */
final class NativeConfig {
  private static final NcclVersion NAMES_SINCE = NcclVersion.of(2, 27, 0);
  private static final Logger LOG = Loggers.of(NcclConfig.class);

  // NCCL never copies a communicator's name, and children inherit the pointer. So each name is
  // allocated once, for the life of the process.
  private static final Map<String, MemorySegment> NAMES = new ConcurrentHashMap<>();

  private NativeConfig() {}

  /**
   * Returns whether NCCL creates a blocking communicator. The environment takes precedence over the
   * configuration.
   */
  static boolean blocking(NcclConfig config) {
    return switch (NativeEnvironment.get("NCCL_COMM_BLOCKING").orElse("").strip()) {
      case "0" -> false;
      case "1" -> true;
      default -> config.common().blocking();
    };
  }

  /**
   * Checks that the library accepts and reads the whole configuration.
   *
   * @throws IllegalArgumentException if settings contradict each other
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old for a setting
   */
  static void check(NcclConfig config, NcclVersion library) {
    config.checkConsistent();
    if (config.unsupportedConfigPolicy() == UnsupportedConfigPolicy.REFUSE) {
      config
          .fields()
          .forEach(
              (setting, value) -> library.require(setting.since(value), describe(setting, value)));
    }
  }

  /**
   * Checks that the library reads the name. Not called if only a {@link
   * io.nccl4j.CommunicatorConfig} was given: an unsupported name is then just a warning.
   *
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old for a name
   */
  static void checkName(NcclConfig config, NcclVersion library) {
    String name = config.common().name();
    if (!name.isEmpty() && config.unsupportedConfigPolicy() == UnsupportedConfigPolicy.REFUSE) {
      library.require(NAMES_SINCE, "ncclConfig_t.commName = " + name);
    }
  }

  /**
   * Returns the struct of {@code NCCL_CONFIG_INITIALIZER} with the settings of a checked
   * configuration. NCCL copies it.
   */
  static MemorySegment of(NcclConfig config, NcclVersion library, Arena arena) {
    MemorySegment struct = ncclConfig_t.allocate(arena);
    int undefined = nccl_h.NCCL_CONFIG_UNDEF_INT();
    // Every field is an int or a pointer, and the unset pointer is NULL. The ints are set below.
    struct.asSlice(ncclConfig_t.blocking$offset()).fill((byte) 0);
    ncclConfig_t.size(struct, ncclConfig_t.sizeof());
    ncclConfig_t.magic(struct, nccl_h.NCCL_API_MAGIC());
    ncclConfig_t.version(struct, nccl_h.NCCL_VERSION_CODE());
    ncclConfig_t.blocking(struct, config.common().blocking() ? 1 : 0);
    ncclConfig_t.commName(struct, name(config.common().name(), library));
    config.netName().ifPresent(name -> ncclConfig_t.netName(struct, arena.allocateFrom(name)));
    for (ConfigField setting : ConfigField.values()) {
      setting.write(struct, undefined);
    }
    config.fields().forEach((setting, value) -> write(struct, setting, value, library));
    return struct;
  }

  private static void write(
      MemorySegment struct, ConfigField setting, int value, NcclVersion library) {
    NcclVersion since = setting.since(value);
    if (library.atLeast(since)) {
      setting.write(struct, value);
    } else {
      LOG.warn(
          "{} is ignored: it needs NCCL {}, found {}", describe(setting, value), since, library);
    }
  }

  private static String describe(ConfigField setting, int value) {
    return "ncclConfig_t." + setting.field() + " = " + value;
  }

  private static MemorySegment name(String name, NcclVersion library) {
    if (name.isEmpty()) {
      return MemorySegment.NULL;
    }
    if (!library.atLeast(NAMES_SINCE)) {
      LOG.warn(
          "the name {} is ignored: ncclConfig_t.commName needs NCCL {}, found {}",
          name,
          NAMES_SINCE,
          library);
      return MemorySegment.NULL;
    }
    return NAMES.computeIfAbsent(name, text -> Arena.global().allocateFrom(text));
  }
}
