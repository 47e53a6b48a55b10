package io.nccl4j.nccl;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.internal.util.Arguments;
import java.util.EnumMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * How a communicator of NCCL's is to be made: what every backend knows, and what only NCCL does.
 * Immutable: each {@code with} method returns a changed copy. What is not set stays unset, reads as
 * nothing, and NCCL decides; where an environment variable says the same thing, it wins over what
 * is set here.
 *
 * <p>A setting that the loaded library is too old for would be ignored by it. It is refused with an
 * {@link UnsupportedNcclVersionException} when a communicator is made, or, after {@link
 * #withUnsupported}, named in a warning. So is the name (it needs NCCL 2.27), which is only a
 * warning where a communicator is made with a {@link CommunicatorConfig} alone.
 *
 * <p>C: {@code ncclConfig_t}, which came with NCCL 2.14.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclconfig">ncclConfig_t</a>
 */
public final class NcclConfig {
  private static final int MOST_CGAS = 8;
  private static final int MOST_CHANNELS = 64;
  private static final NcclConfig DEFAULTS = of(CommunicatorConfig.defaults());

  private final CommunicatorConfig common;
  private final Map<ConfigField, Integer> fields;
  private final String netName;
  private final UnsupportedConfigPolicy unsupported;

  private NcclConfig(
      CommunicatorConfig common,
      Map<ConfigField, Integer> settings,
      String netName,
      UnsupportedConfigPolicy unsupported) {
    this.common = common;
    this.fields = settings;
    this.netName = netName;
    this.unsupported = unsupported;
  }

  /**
   * {@return a configuration that leaves all that only NCCL knows to NCCL}
   *
   * @param common what every backend knows
   */
  public static NcclConfig of(CommunicatorConfig common) {
    Objects.requireNonNull(common, "common");
    return new NcclConfig(common, Map.of(), null, UnsupportedConfigPolicy.REFUSE);
  }

  /** {@return the configuration that suits most programs: {@link CommunicatorConfig#defaults}} */
  public static NcclConfig defaults() {
    return DEFAULTS;
  }

  /** {@return what every backend knows} */
  public CommunicatorConfig common() {
    return common;
  }

  /**
   * {@return a copy with other settings of those that every backend knows}
   *
   * @param value the settings
   */
  public NcclConfig withCommon(CommunicatorConfig value) {
    return new NcclConfig(Objects.requireNonNull(value, "common"), fields, netName, unsupported);
  }

  /**
   * {@return a copy that is refused, or only warned of, where the loaded library is too old for a
   * setting}
   *
   * @param value what becomes of such a setting
   */
  public NcclConfig withUnsupported(UnsupportedConfigPolicy value) {
    return new NcclConfig(common, fields, netName, Objects.requireNonNull(value, "unsupported"));
  }

  /** {@return what becomes of a setting that the loaded library is too old for} */
  public UnsupportedConfigPolicy unsupported() {
    return unsupported;
  }

  /**
   * {@return a copy whose kernels run in clusters of so many thread blocks} C: {@code
   * ncclConfig_t.cgaClusterSize}, from NCCL 2.17 on.
   *
   * @param value how many, from 0 (no clusters) to 8
   * @throws IllegalArgumentException if the value is out of its range
   */
  public NcclConfig withCgaClusterSize(int value) {
    return with(
        ConfigField.CGA_CLUSTER_SIZE, Arguments.inRange(value, "cgaClusterSize", 0, MOST_CGAS));
  }

  /** {@return what {@link #withCgaClusterSize} has set, or nothing} */
  public OptionalInt cgaClusterSize() {
    return number(ConfigField.CGA_CLUSTER_SIZE);
  }

  /**
   * {@return a copy whose kernels have at least so many thread blocks; it needs {@link
   * #withMaxCtas} too} C: {@code ncclConfig_t.minCTAs}, from NCCL 2.17 on.
   *
   * @param value how many, 1 or more; NCCL caps it at its number of channels
   * @throws IllegalArgumentException if the value is out of its range
   */
  public NcclConfig withMinCtas(int value) {
    return with(ConfigField.MIN_CTAS, Arguments.atLeast(value, "minCtas", 1));
  }

  /** {@return what {@link #withMinCtas} has set, or nothing} */
  public OptionalInt minCtas() {
    return number(ConfigField.MIN_CTAS);
  }

  /**
   * {@return a copy whose kernels have at most so many thread blocks} C: {@code
   * ncclConfig_t.maxCTAs}, from NCCL 2.17 on.
   *
   * @param value how many, 1 or more; NCCL caps it at its number of channels
   * @throws IllegalArgumentException if the value is out of its range
   */
  public NcclConfig withMaxCtas(int value) {
    return with(ConfigField.MAX_CTAS, Arguments.atLeast(value, "maxCtas", 1));
  }

  /** {@return what {@link #withMaxCtas} has set, or nothing} */
  public OptionalInt maxCtas() {
    return number(ConfigField.MAX_CTAS);
  }

  /**
   * {@return a copy that uses a given network} C: {@code ncclConfig_t.netName}, from NCCL 2.17 on.
   *
   * @param value the name of NCCL's network module, such as {@code IB}, {@code Socket} or that of a
   *     plugin, in any case
   * @throws IllegalArgumentException if the name is blank or contains a NUL character
   */
  public NcclConfig withNetName(String value) {
    Objects.requireNonNull(value, "netName");
    if (value.isBlank() || value.indexOf('\0') >= 0) {
      throw new IllegalArgumentException(
          "netName is \"" + value + "\"; it must name a network and contain no NUL character");
    }
    return new NcclConfig(common, fields, value, unsupported);
  }

  /** {@return what {@link #withNetName} has set, or nothing} */
  public Optional<String> netName() {
    return Optional.ofNullable(netName);
  }

  /**
   * {@return a copy that shares its resources with the children of a split, or does not; an abort
   * of one then may end the others, and one thread at a time may use them all} C: {@code
   * ncclConfig_t.splitShare}, from NCCL 2.18 on.
   *
   * @param value whether it shares
   */
  public NcclConfig withSplitShare(boolean value) {
    return with(ConfigField.SPLIT_SHARE, flag(value));
  }

  /** {@return what {@link #withSplitShare} has set, or nothing} */
  public Optional<Boolean> splitShare() {
    return flag(ConfigField.SPLIT_SHARE);
  }

  /**
   * {@return a copy whose network traffic is of a given class} C: {@code
   * ncclConfig_t.trafficClass}, from NCCL 2.26 on.
   *
   * @param value the class, 0 or more; what it means is the network's affair
   * @throws IllegalArgumentException if the value is out of its range
   */
  public NcclConfig withTrafficClass(int value) {
    return with(ConfigField.TRAFFIC_CLASS, Arguments.atLeast(value, "trafficClass", 0));
  }

  /** {@return what {@link #withTrafficClass} has set, or nothing} */
  public OptionalInt trafficClass() {
    return number(ConfigField.TRAFFIC_CLASS);
  }

  /**
   * {@return a copy that lets the network reduce (SHARP), or does not} C: {@code
   * ncclConfig_t.collnetEnable}, from NCCL 2.27 on.
   *
   * @param value whether it does
   */
  public NcclConfig withCollnetEnable(boolean value) {
    return with(ConfigField.COLLNET_ENABLE, flag(value));
  }

  /** {@return what {@link #withCollnetEnable} has set, or nothing} */
  public Optional<Boolean> collnetEnable() {
    return flag(ConfigField.COLLNET_ENABLE);
  }

  /**
   * {@return a copy that spends thread blocks for a given aim} C: {@code ncclConfig_t.CTAPolicy},
   * from NCCL 2.27 on.
   *
   * @param value the aim; {@link CtaPolicy#ZERO} needs NCCL 2.28
   */
  public NcclConfig withCtaPolicy(CtaPolicy value) {
    return with(ConfigField.CTA_POLICY, value.code());
  }

  /** {@return what {@link #withCtaPolicy} has set, or nothing} */
  public Optional<CtaPolicy> ctaPolicy() {
    return Optional.ofNullable(fields.get(ConfigField.CTA_POLICY)).map(CtaPolicy::of);
  }

  /**
   * {@return a copy that shares its resources with the children of an orderly shrink, or does not;
   * one thread at a time then may use them all} C: {@code ncclConfig_t.shrinkShare}, from NCCL 2.27
   * on.
   *
   * @param value whether it shares
   */
  public NcclConfig withShrinkShare(boolean value) {
    return with(ConfigField.SHRINK_SHARE, flag(value));
  }

  /** {@return what {@link #withShrinkShare} has set, or nothing} */
  public Optional<Boolean> shrinkShare() {
    return flag(ConfigField.SHRINK_SHARE);
  }

  /**
   * {@return a copy whose NVLink SHARP kernels have so many thread blocks in all} C: {@code
   * ncclConfig_t.nvlsCTAs}, from NCCL 2.27 on.
   *
   * @param value how many, 1 or more
   * @throws IllegalArgumentException if the value is out of its range
   */
  public NcclConfig withNvlsCtas(int value) {
    return with(ConfigField.NVLS_CTAS, Arguments.atLeast(value, "nvlsCtas", 1));
  }

  /** {@return what {@link #withNvlsCtas} has set, or nothing} */
  public OptionalInt nvlsCtas() {
    return number(ConfigField.NVLS_CTAS);
  }

  /**
   * {@return a copy that talks to each peer over so many network channels} C: {@code
   * ncclConfig_t.nChannelsPerNetPeer}, from NCCL 2.28 on.
   *
   * @param value how many, from 1 to 64; NCCL takes the next power of two
   * @throws IllegalArgumentException if the value is out of its range
   */
  public NcclConfig withChannelsPerNetPeer(int value) {
    return with(
        ConfigField.CHANNELS_PER_NET_PEER,
        Arguments.inRange(value, "channelsPerNetPeer", 1, MOST_CHANNELS));
  }

  /** {@return what {@link #withChannelsPerNetPeer} has set, or nothing} */
  public OptionalInt channelsPerNetPeer() {
    return number(ConfigField.CHANNELS_PER_NET_PEER);
  }

  /**
   * {@return a copy that schedules messages for the use of NVLink, or does not} C: {@code
   * ncclConfig_t.nvlinkCentricSched}, from NCCL 2.28 on.
   *
   * @param value whether it does
   */
  public NcclConfig withNvlinkCentricScheduling(boolean value) {
    return with(ConfigField.NVLINK_CENTRIC_SCHEDULING, flag(value));
  }

  /** {@return what {@link #withNvlinkCentricScheduling} has set, or nothing} */
  public Optional<Boolean> nvlinkCentricScheduling() {
    return flag(ConfigField.NVLINK_CENTRIC_SCHEDULING);
  }

  /**
   * {@return a copy whose operations meet CUDA graphs in a given way} C: {@code
   * ncclConfig_t.graphUsageMode}, from NCCL 2.29 on.
   *
   * @param value the way
   */
  public NcclConfig withGraphUsage(GraphUsage value) {
    return with(ConfigField.GRAPH_USAGE, value.code());
  }

  /** {@return what {@link #withGraphUsage} has set, or nothing} */
  public Optional<GraphUsage> graphUsage() {
    return Optional.ofNullable(fields.get(ConfigField.GRAPH_USAGE)).map(GraphUsage::of);
  }

  /**
   * {@return a copy with so many contexts for one-sided operations} C: {@code
   * ncclConfig_t.numRmaCtx}, from NCCL 2.29 on.
   *
   * @param value how many, 0 or more; 0 for none of these operations
   * @throws IllegalArgumentException if the value is out of its range
   */
  public NcclConfig withRmaContexts(int value) {
    return with(ConfigField.RMA_CONTEXTS, Arguments.atLeast(value, "rmaContexts", 0));
  }

  /** {@return what {@link #withRmaContexts} has set, or nothing} */
  public OptionalInt rmaContexts() {
    return number(ConfigField.RMA_CONTEXTS);
  }

  /**
   * {@return a copy in which no rank exchanges messages with more peers than that at the same time}
   * C: {@code ncclConfig_t.maxP2pPeers}, from NCCL 2.30 on.
   *
   * @param value how many, 1 or more
   * @throws IllegalArgumentException if the value is out of its range
   */
  public NcclConfig withMaxP2pPeers(int value) {
    return with(ConfigField.MAX_P2P_PEERS, Arguments.atLeast(value, "maxP2pPeers", 1));
  }

  /** {@return what {@link #withMaxP2pPeers} has set, or nothing} */
  public OptionalInt maxP2pPeers() {
    return number(ConfigField.MAX_P2P_PEERS);
  }

  /**
   * {@return a copy for whose kernels in CUDA graphs NCCL keeps the order of capture, or leaves it
   * to the program} C: {@code ncclConfig_t.graphStreamOrdering}, from NCCL 2.30.5 on.
   *
   * @param value whether NCCL does; without it, NCCL needs {@link #withGraphUsage} {@code NONE} or
   *     {@code ONE_GRAPH}, and goes on as if it were true otherwise
   */
  public NcclConfig withGraphStreamOrdering(boolean value) {
    return with(ConfigField.GRAPH_STREAM_ORDERING, flag(value));
  }

  /** {@return what {@link #withGraphStreamOrdering} has set, or nothing} */
  public Optional<Boolean> graphStreamOrdering() {
    return flag(ConfigField.GRAPH_STREAM_ORDERING);
  }

  private NcclConfig with(ConfigField setting, int value) {
    Map<ConfigField, Integer> changed = new EnumMap<>(ConfigField.class);
    changed.putAll(fields);
    changed.put(setting, value);
    return new NcclConfig(common, changed, netName, unsupported);
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

  /** Returns the numbers that are set; not to be changed. */
  Map<ConfigField, Integer> fields() {
    return fields;
  }

  /**
   * Throws where two settings do not go together.
   *
   * @throws IllegalArgumentException if they do not
   */
  void checkTogether() {
    Integer least = fields.get(ConfigField.MIN_CTAS);
    Integer most = fields.get(ConfigField.MAX_CTAS);
    if (least != null && most == null) {
      throw new IllegalArgumentException(
          "minCtas is " + least + " and maxCtas is not set; NCCL takes minCtas only with maxCtas");
    }
    if (least != null && least > most) {
      throw new IllegalArgumentException(
          "minCtas is " + least + "; it must be at most maxCtas, " + most);
    }
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof NcclConfig that
        && common.equals(that.common)
        && fields.equals(that.fields)
        && Objects.equals(netName, that.netName)
        && unsupported == that.unsupported;
  }

  @Override
  public int hashCode() {
    return Objects.hash(common, fields, netName, unsupported);
  }

  @Override
  public String toString() {
    StringBuilder text = new StringBuilder("NcclConfig[").append(common);
    fields.forEach(
        (setting, value) -> text.append(", ").append(setting.field()).append('=').append(value));
    netName().ifPresent(name -> text.append(", netName=").append(name));
    return text.append(", unsupported=").append(unsupported).append(']').toString();
  }
}
