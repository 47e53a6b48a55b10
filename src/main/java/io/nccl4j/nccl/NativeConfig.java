package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.ncclConfig_t;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.NativeEnvironment;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * A {@link NcclConfig} as NCCL reads it, {@code ncclConfig_t}; and the gate for what the loaded
 * library would not read, since it copies only as much of the struct as it knows.
 */
final class NativeConfig {
  private static final NcclVersion NAMES_SINCE = NcclVersion.of(2, 27, 0);
  private static final Logger LOG = LogManager.getLogger(NcclConfig.class);

  // NCCL never copies a communicator's name, and children inherit it: names stay for the life of
  // the process, each once.
  private static final Map<String, MemorySegment> NAMES = new ConcurrentHashMap<>();

  private NativeConfig() {}

  /**
   * Returns whether NCCL makes a blocking communicator of the configuration: the environment wins
   * over it.
   */
  static boolean blocking(NcclConfig config) {
    return switch (NativeEnvironment.get("NCCL_COMM_BLOCKING").orElse("").strip()) {
      case "0" -> false;
      case "1" -> true;
      default -> config.common().blocking();
    };
  }

  /**
   * Throws where the library would refuse the configuration, or not read all of it.
   *
   * @throws IllegalArgumentException if settings do not go together
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old for a setting
   */
  static void check(NcclConfig config, NcclVersion library) {
    config.checkTogether();
    if (config.unsupported() == UnsupportedConfigPolicy.REFUSE) {
      config
          .fields()
          .forEach(
              (setting, value) -> library.require(setting.since(value), describe(setting, value)));
    }
  }

  /**
   * Throws where the library would not read the name. A caller who gave no more than a {@link
   * io.nccl4j.CommunicatorConfig} is only warned.
   *
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old for a name
   */
  static void checkName(NcclConfig config, NcclVersion library) {
    String name = config.common().name();
    if (!name.isEmpty() && config.unsupported() == UnsupportedConfigPolicy.REFUSE) {
      library.require(NAMES_SINCE, "ncclConfig_t.commName = " + name);
    }
  }

  /**
   * Returns the struct that {@code NCCL_CONFIG_INITIALIZER} makes, with what the configuration
   * says; NCCL copies it. The configuration has been checked.
   */
  static MemorySegment of(NcclConfig config, NcclVersion library, Arena arena) {
    MemorySegment struct = ncclConfig_t.allocate(arena);
    int undefined = nccl_h.NCCL_CONFIG_UNDEF_INT();
    // Every field of the struct is an int or a pointer whose unset value is NULL; the ints are set
    // one by one below.
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
          "{} is left out: it needs NCCL {}, found {}", describe(setting, value), since, library);
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
          "the name {} is left out: ncclConfig_t.commName needs NCCL {}, found {}",
          name,
          NAMES_SINCE,
          library);
      return MemorySegment.NULL;
    }
    return NAMES.computeIfAbsent(name, text -> Arena.global().allocateFrom(text));
  }
}
