package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.ncclConfig_t;
import java.lang.foreign.MemorySegment;

/** The numeric fields of {@code ncclConfig_t} that {@link NcclConfig} can set. */
@SuppressWarnings(
    "ImmutableEnumChecker") // A record of an int, and a method reference without state.
enum ConfigField {
  CGA_CLUSTER_SIZE("cgaClusterSize", NcclVersion.of(2, 17, 0), ncclConfig_t::cgaClusterSize),
  MIN_CTAS("minCTAs", NcclVersion.of(2, 17, 0), ncclConfig_t::minCTAs),
  MAX_CTAS("maxCTAs", NcclVersion.of(2, 17, 0), ncclConfig_t::maxCTAs),
  SPLIT_SHARE("splitShare", NcclVersion.of(2, 18, 0), ncclConfig_t::splitShare),
  TRAFFIC_CLASS("trafficClass", NcclVersion.of(2, 26, 0), ncclConfig_t::trafficClass),
  COLLNET_ENABLE("collnetEnable", NcclVersion.of(2, 27, 0), ncclConfig_t::collnetEnable),
  CTA_POLICY("CTAPolicy", NcclVersion.of(2, 27, 0), ncclConfig_t::CTAPolicy),
  SHRINK_SHARE("shrinkShare", NcclVersion.of(2, 27, 0), ncclConfig_t::shrinkShare),
  NVLS_CTAS("nvlsCTAs", NcclVersion.of(2, 27, 0), ncclConfig_t::nvlsCTAs),
  CHANNELS_PER_NET_PEER(
      "nChannelsPerNetPeer", NcclVersion.of(2, 28, 0), ncclConfig_t::nChannelsPerNetPeer),
  NVLINK_CENTRIC_SCHEDULING(
      "nvlinkCentricSched", NcclVersion.of(2, 28, 0), ncclConfig_t::nvlinkCentricSched),
  GRAPH_USAGE("graphUsageMode", NcclVersion.of(2, 29, 0), ncclConfig_t::graphUsageMode),
  RMA_CONTEXTS("numRmaCtx", NcclVersion.of(2, 29, 0), ncclConfig_t::numRmaCtx),
  MAX_P2P_PEERS("maxP2pPeers", NcclVersion.of(2, 30, 0), ncclConfig_t::maxP2pPeers),
  GRAPH_STREAM_ORDERING(
      "graphStreamOrdering", NcclVersion.of(2, 30, 5), ncclConfig_t::graphStreamOrdering);

  /** The generated setter of a field. */
  private interface Field {
    void set(MemorySegment struct, int value);
  }

  private final String field;
  private final NcclVersion since;
  private final Field setter;

  ConfigField(String field, NcclVersion since, Field setter) {
    this.field = field;
    this.since = since;
    this.setter = setter;
  }

  /** Returns the name of the C field. */
  String field() {
    return field;
  }

  /** Returns the first release that supports a value of this field. */
  NcclVersion since(int value) {
    return this == CTA_POLICY && value == CtaPolicy.ZERO.code() ? NcclVersion.of(2, 28, 0) : since;
  }

  void write(MemorySegment struct, int value) {
    setter.set(struct, value);
  }
}
