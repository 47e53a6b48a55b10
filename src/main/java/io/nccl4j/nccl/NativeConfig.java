package io.nccl4j.nccl;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.bindings.nccl.ncclConfig_t;
import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** A {@link CommunicatorConfig} as NCCL reads it: {@code ncclConfig_t}. */
final class NativeConfig {
  // NCCL never copies a communicator's name, and children inherit it: names stay for the life of
  // the process, each once.
  private static final Map<String, MemorySegment> NAMES = new ConcurrentHashMap<>();

  private NativeConfig() {}

  /**
   * Returns the struct that {@code NCCL_CONFIG_INITIALIZER} makes, with what the configuration
   * says; NCCL copies it.
   */
  static MemorySegment of(CommunicatorConfig config, NcclVersion library, Arena arena) {
    MemorySegment struct = ncclConfig_t.allocate(arena);
    int undefined = nccl_h.NCCL_CONFIG_UNDEF_INT();
    // Every field of the struct is an int or a pointer whose unset value is NULL; the ints are set
    // one by one below.
    struct.asSlice(ncclConfig_t.blocking$offset()).fill((byte) 0);
    ncclConfig_t.size(struct, ncclConfig_t.sizeof());
    ncclConfig_t.magic(struct, nccl_h.NCCL_API_MAGIC());
    ncclConfig_t.version(struct, nccl_h.NCCL_VERSION_CODE());
    ncclConfig_t.blocking(struct, config.blocking() ? 1 : 0);
    ncclConfig_t.cgaClusterSize(struct, undefined);
    ncclConfig_t.minCTAs(struct, undefined);
    ncclConfig_t.maxCTAs(struct, undefined);
    ncclConfig_t.netName(struct, MemorySegment.NULL);
    ncclConfig_t.splitShare(struct, undefined);
    ncclConfig_t.trafficClass(struct, undefined);
    ncclConfig_t.commName(struct, name(config, library));
    ncclConfig_t.collnetEnable(struct, undefined);
    ncclConfig_t.CTAPolicy(struct, undefined);
    ncclConfig_t.shrinkShare(struct, undefined);
    ncclConfig_t.nvlsCTAs(struct, undefined);
    ncclConfig_t.nChannelsPerNetPeer(struct, undefined);
    ncclConfig_t.nvlinkCentricSched(struct, undefined);
    ncclConfig_t.graphUsageMode(struct, undefined);
    ncclConfig_t.numRmaCtx(struct, undefined);
    ncclConfig_t.maxP2pPeers(struct, undefined);
    ncclConfig_t.graphStreamOrdering(struct, undefined);
    return struct;
  }

  private static MemorySegment name(CommunicatorConfig config, NcclVersion library) {
    if (config.name().isEmpty() || !library.atLeast(NcclVersion.V2_27)) {
      return MemorySegment.NULL;
    }
    return NAMES.computeIfAbsent(config.name(), name -> Arena.global().allocateFrom(name));
  }
}
