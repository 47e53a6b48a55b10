package io.nccl4j.nccl;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.internal.util.Arguments;
import java.util.EnumMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalInt;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * The configuration of an NCCL communicator: the settings of every backend ({@link #common}) and
 * the NCCL-specific ones. Immutable: each {@code with} method returns a changed copy. An unset
 * value reads as empty and is left to NCCL. An environment variable for the same setting takes
 * precedence over the value set here.
 *
 * <p>NCCL would ignore a setting that is newer than the loaded library. Creating a communicator
 * with one therefore fails with an {@link UnsupportedNcclVersionException}, or logs a warning after
 * {@link #withUnsupportedConfigPolicy}. The same applies to a communicator's name, which needs NCCL
 * 2.27; if only a {@link CommunicatorConfig} was given, an unsupported name is always just a
 * warning.
 *
 * <p>C: {@code ncclConfig_t}, from NCCL 2.14 on.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclconfig">ncclConfig_t</a>
 */
@NullMarked
public final class NcclConfig {
  private static final int MAX_CGA_CLUSTER_SIZE = 8;
  private static final int MAX_CHANNELS = 64;
  private static final NcclConfig DEFAULTS = of(CommunicatorConfig.defaults());

  private final CommunicatorConfig common;
  private final Map<ConfigField, Integer> fields;
  private final @Nullable String netName;
  private final UnsupportedConfigPolicy unsupportedConfigPolicy;

  private NcclConfig(
      CommunicatorConfig common,
      Map<ConfigField, Integer> fields,
      @Nullable String netName,
      UnsupportedConfigPolicy unsupported) {
    this.common = common;
    this.fields = fields;
    this.netName = netName;
    this.unsupportedConfigPolicy = unsupported;
  }

  /**
   * {@return a configuration with no NCCL-specific settings}
   *
   * @param common the settings of every backend
   */
  public static NcclConfig of(CommunicatorConfig common) {
    Objects.requireNonNull(common, "common");
    return new NcclConfig(common, Map.of(), null, UnsupportedConfigPolicy.REFUSE);
  }

  /** {@return the configuration for most programs, with {@link CommunicatorConfig#defaults}} */
  public static NcclConfig defaults() {
    return DEFAULTS;
  }

  /** {@return the settings of every backend} */
  public CommunicatorConfig common() {
    return common;
  }

  /**
   * {@return a copy with other settings of those that every backend has}
   *
   * @param value the settings
   */
  public NcclConfig withCommon(CommunicatorConfig value) {
    return new NcclConfig(
        Objects.requireNonNull(value, "common"), fields, netName, unsupportedConfigPolicy);
  }

  /**
   * {@return a copy with a policy for settings that the loaded library is too old for}
   *
   * @param value the policy
   */
  public NcclConfig withUnsupportedConfigPolicy(UnsupportedConfigPolicy value) {
    return new NcclConfig(common, fields, netName, Objects.requireNonNull(value, "unsupported"));
  }

  /** {@return the policy for settings that the loaded library is too old for} */
  public UnsupportedConfigPolicy unsupportedConfigPolicy() {
    return unsupportedConfigPolicy;
  }

  /**
   * {@return a copy with a cluster size, in thread blocks, for NCCL's kernels} C: {@code
   * ncclConfig_t.cgaClusterSize}, from NCCL 2.17 on.
   *
   * @param value the number of thread blocks per cluster, from 0 (no clusters) to 8
   * @throws IllegalArgumentException if the value is out of range
   */
  public NcclConfig withCgaClusterSize(int value) {
    return with(
        ConfigField.CGA_CLUSTER_SIZE,
        Arguments.inRange(value, "cgaClusterSize", 0, MAX_CGA_CLUSTER_SIZE));
  }

  /** {@return the value of {@link #withCgaClusterSize}, or empty if not set} */
  public OptionalInt cgaClusterSize() {
    return number(ConfigField.CGA_CLUSTER_SIZE);
  }

  /**
   * {@return a copy with a minimum number of thread blocks per kernel} Also requires {@link
   * #withMaxCtas}. C: {@code ncclConfig_t.minCTAs}, from NCCL 2.17 on.
   *
   * @param value the number of thread blocks, 1 or more; NCCL caps it at its number of channels
   * @throws IllegalArgumentException if the value is out of range
   */
  public NcclConfig withMinCtas(int value) {
    return with(ConfigField.MIN_CTAS, Arguments.atLeast(value, "minCtas", 1));
  }

  /** {@return the value of {@link #withMinCtas}, or empty if not set} */
  public OptionalInt minCtas() {
    return number(ConfigField.MIN_CTAS);
  }

  /**
   * {@return a copy with a maximum number of thread blocks per kernel} C: {@code
   * ncclConfig_t.maxCTAs}, from NCCL 2.17 on.
   *
   * @param value the number of thread blocks, 1 or more; NCCL caps it at its number of channels
   * @throws IllegalArgumentException if the value is out of range
   */
  public NcclConfig withMaxCtas(int value) {
    return with(ConfigField.MAX_CTAS, Arguments.atLeast(value, "maxCtas", 1));
  }

  /** {@return the value of {@link #withMaxCtas}, or empty if not set} */
  public OptionalInt maxCtas() {
    return number(ConfigField.MAX_CTAS);
  }

  /**
   * {@return a copy that selects a network module} C: {@code ncclConfig_t.netName}, from NCCL 2.17
   * on.
   *
   * @param value the name of the module, such as {@code IB}, {@code Socket} or a plugin's name;
   *     case is ignored
   * @throws IllegalArgumentException if the name is blank or contains a NUL character
   */
  public NcclConfig withNetName(String value) {
    Objects.requireNonNull(value, "netName");
    if (value.isBlank() || value.indexOf('\0') >= 0) {
      throw new IllegalArgumentException(
          "netName is \"" + value + "\"; it must name a network and contain no NUL character");
    }
    return new NcclConfig(common, fields, value, unsupportedConfigPolicy);
  }

  /** {@return the value of {@link #withNetName}, or empty if not set} */
  public Optional<String> netName() {
    return Optional.ofNullable(netName);
  }

  /**
   * {@return a copy whose communicator shares, or does not share, its resources with the children
   * of a split} If they are shared, aborting one communicator may end the others, and only one
   * thread at a time may use any of them. C: {@code ncclConfig_t.splitShare}, from NCCL 2.18 on.
   *
   * @param value whether to share resources
   */
  public NcclConfig withSplitShare(boolean value) {
    return with(ConfigField.SPLIT_SHARE, flag(value));
  }

  /** {@return the value of {@link #withSplitShare}, or empty if not set} */
  public Optional<Boolean> splitShare() {
    return flag(ConfigField.SPLIT_SHARE);
  }

  /**
   * {@return a copy with a traffic class for the network} C: {@code ncclConfig_t.trafficClass},
   * from NCCL 2.26 on.
   *
   * @param value the class, 0 or more; its meaning depends on the network
   * @throws IllegalArgumentException if the value is out of range
   */
  public NcclConfig withTrafficClass(int value) {
    return with(ConfigField.TRAFFIC_CLASS, Arguments.atLeast(value, "trafficClass", 0));
  }

  /** {@return the value of {@link #withTrafficClass}, or empty if not set} */
  public OptionalInt trafficClass() {
    return number(ConfigField.TRAFFIC_CLASS);
  }

  /**
   * {@return a copy that enables or disables reductions in the network (CollNet, SHARP)} C: {@code
   * ncclConfig_t.collnetEnable}, from NCCL 2.27 on.
   *
   * @param value whether to enable them
   */
  public NcclConfig withCollnetEnable(boolean value) {
    return with(ConfigField.COLLNET_ENABLE, flag(value));
  }

  /** {@return the value of {@link #withCollnetEnable}, or empty if not set} */
  public Optional<Boolean> collnetEnable() {
    return flag(ConfigField.COLLNET_ENABLE);
  }

  /**
   * {@return a copy with a policy for the use of thread blocks} C: {@code ncclConfig_t.CTAPolicy},
   * from NCCL 2.27 on.
   *
   * @param value the policy; {@link CtaPolicy#ZERO} needs NCCL 2.28
   */
  public NcclConfig withCtaPolicy(CtaPolicy value) {
    return with(ConfigField.CTA_POLICY, value.code());
  }

  /** {@return the value of {@link #withCtaPolicy}, or empty if not set} */
  public Optional<CtaPolicy> ctaPolicy() {
    return Optional.ofNullable(fields.get(ConfigField.CTA_POLICY)).map(CtaPolicy::of);
  }

  /**
   * {@return a copy whose communicator shares, or does not share, its resources with the children
   * of a {@link io.nccl4j.ShrinkMode#FINISH_FIRST} shrink} If they are shared, only one thread at a
   * time may use any of them. C: {@code ncclConfig_t.shrinkShare}, from NCCL 2.27 on.
   *
   * @param value whether to share resources
   */
  public NcclConfig withShrinkShare(boolean value) {
    return with(ConfigField.SHRINK_SHARE, flag(value));
  }

  /** {@return the value of {@link #withShrinkShare}, or empty if not set} */
  public Optional<Boolean> shrinkShare() {
    return flag(ConfigField.SHRINK_SHARE);
  }

  /**
   * {@return a copy with a total number of thread blocks for NVLink SHARP kernels} C: {@code
   * ncclConfig_t.nvlsCTAs}, from NCCL 2.27 on.
   *
   * @param value the number of thread blocks, 1 or more
   * @throws IllegalArgumentException if the value is out of range
   */
  public NcclConfig withNvlsCtas(int value) {
    return with(ConfigField.NVLS_CTAS, Arguments.atLeast(value, "nvlsCtas", 1));
  }

  /** {@return the value of {@link #withNvlsCtas}, or empty if not set} */
  public OptionalInt nvlsCtas() {
    return number(ConfigField.NVLS_CTAS);
  }

  /**
   * {@return a copy with a number of network channels per peer} C: {@code
   * ncclConfig_t.nChannelsPerNetPeer}, from NCCL 2.28 on.
   *
   * @param value the number of channels, from 1 to 64; NCCL rounds it up to a power of two
   * @throws IllegalArgumentException if the value is out of range
   */
  public NcclConfig withChannelsPerNetPeer(int value) {
    return with(
        ConfigField.CHANNELS_PER_NET_PEER,
        Arguments.inRange(value, "channelsPerNetPeer", 1, MAX_CHANNELS));
  }

  /** {@return the value of {@link #withChannelsPerNetPeer}, or empty if not set} */
  public OptionalInt channelsPerNetPeer() {
    return number(ConfigField.CHANNELS_PER_NET_PEER);
  }

  /**
   * {@return a copy that enables or disables NVLink-centric scheduling of messages} C: {@code
   * ncclConfig_t.nvlinkCentricSched}, from NCCL 2.28 on.
   *
   * @param value whether to enable it
   */
  public NcclConfig withNvlinkCentricScheduling(boolean value) {
    return with(ConfigField.NVLINK_CENTRIC_SCHEDULING, flag(value));
  }

  /** {@return the value of {@link #withNvlinkCentricScheduling}, or empty if not set} */
  public Optional<Boolean> nvlinkCentricScheduling() {
    return flag(ConfigField.NVLINK_CENTRIC_SCHEDULING);
  }

  /**
   * {@return a copy that states how the communicator is used with CUDA graphs} C: {@code
   * ncclConfig_t.graphUsageMode}, from NCCL 2.29 on.
   *
   * @param value the usage
   */
  public NcclConfig withGraphUsage(GraphUsage value) {
    return with(ConfigField.GRAPH_USAGE, value.code());
  }

  /** {@return the value of {@link #withGraphUsage}, or empty if not set} */
  public Optional<GraphUsage> graphUsage() {
    return Optional.ofNullable(fields.get(ConfigField.GRAPH_USAGE)).map(GraphUsage::of);
  }

  /**
   * {@return a copy with a number of contexts for one-sided operations} C: {@code
   * ncclConfig_t.numRmaCtx}, from NCCL 2.29 on.
   *
   * @param value the number of contexts, 0 or more; 0 disables one-sided operations
   * @throws IllegalArgumentException if the value is out of range
   */
  public NcclConfig withRmaContexts(int value) {
    return with(ConfigField.RMA_CONTEXTS, Arguments.atLeast(value, "rmaContexts", 0));
  }

  /** {@return the value of {@link #withRmaContexts}, or empty if not set} */
  public OptionalInt rmaContexts() {
    return number(ConfigField.RMA_CONTEXTS);
  }

  /**
   * {@return a copy with a limit on the number of peers that a rank exchanges messages with at the
   * same time} C: {@code ncclConfig_t.maxP2pPeers}, from NCCL 2.30 on.
   *
   * @param value the number of peers, 1 or more
   * @throws IllegalArgumentException if the value is out of range
   */
  public NcclConfig withMaxP2pPeers(int value) {
    return with(ConfigField.MAX_P2P_PEERS, Arguments.atLeast(value, "maxP2pPeers", 1));
  }

  /** {@return the value of {@link #withMaxP2pPeers}, or empty if not set} */
  public OptionalInt maxP2pPeers() {
    return number(ConfigField.MAX_P2P_PEERS);
  }

  /**
   * {@return a copy in which NCCL preserves the capture order of its kernels in CUDA graphs, or
   * leaves the order to the program} C: {@code ncclConfig_t.graphStreamOrdering}, from NCCL 2.30.5
   * on.
   *
   * @param value whether NCCL preserves the order; false needs {@link #withGraphUsage} {@code NONE}
   *     or {@code ONE_GRAPH}, otherwise NCCL behaves as if it were true
   */
  public NcclConfig withGraphStreamOrdering(boolean value) {
    return with(ConfigField.GRAPH_STREAM_ORDERING, flag(value));
  }

  /** {@return the value of {@link #withGraphStreamOrdering}, or empty if not set} */
  public Optional<Boolean> graphStreamOrdering() {
    return flag(ConfigField.GRAPH_STREAM_ORDERING);
  }

  private NcclConfig with(ConfigField setting, int value) {
    Map<ConfigField, Integer> changed = new EnumMap<>(ConfigField.class);
    changed.putAll(fields);
    changed.put(setting, value);
    return new NcclConfig(common, changed, netName, unsupportedConfigPolicy);
  }

  private OptionalInt number(ConfigField setting) {
    Integer value = fields.get(setting);
    return value == null ? OptionalInt.empty() : OptionalInt.of(value);
  }

  private Optional<Boolean> flag(ConfigField setting) {
    return Optional.ofNullable(fields.get(setting)).map(value -> value != 0);
  }

  private static int flag(boolean value) {
    return value ? 1 : 0;
  }

  /** Returns the numeric settings. The map must not be modified. */
  Map<ConfigField, Integer> fields() {
    return fields;
  }

  /**
   * Checks that the settings are consistent.
   *
   * @throws IllegalArgumentException if two settings contradict each other
   */
  void checkConsistent() {
    Integer minCtas = fields.get(ConfigField.MIN_CTAS);
    Integer maxCtas = fields.get(ConfigField.MAX_CTAS);
    if (minCtas != null && maxCtas == null) {
      throw new IllegalArgumentException(
          "minCtas is "
              + minCtas
              + " and maxCtas is not set; NCCL takes minCtas only with maxCtas");
    }
    if (minCtas != null && maxCtas != null && minCtas > maxCtas) {
      throw new IllegalArgumentException(
          "minCtas is " + minCtas + "; it must be at most maxCtas, " + maxCtas);
    }
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof NcclConfig that
        && common.equals(that.common)
        && fields.equals(that.fields)
        && Objects.equals(netName, that.netName)
        && unsupportedConfigPolicy == that.unsupportedConfigPolicy;
  }

  @Override
  public int hashCode() {
    return Objects.hash(common, fields, netName, unsupportedConfigPolicy);
  }

  @Override
  public String toString() {
    StringBuilder text = new StringBuilder("NcclConfig[").append(common);
    fields.forEach(
        (setting, value) -> text.append(", ").append(setting.field()).append('=').append(value));
    netName().ifPresent(name -> text.append(", netName=").append(name));
    return text.append(", unsupported=").append(unsupportedConfigPolicy).append(']').toString();
  }
}
