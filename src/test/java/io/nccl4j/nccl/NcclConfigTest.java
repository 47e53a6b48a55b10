package io.nccl4j.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.bindings.nccl.ncclConfig_t;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.function.ToIntFunction;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Validation of {@link NcclConfig}, and its conversion for current and older NCCL releases. */
class NcclConfigTest {
  private static final NcclVersion NEWEST = new NcclVersion(23007);
  private static final int UNSET = Integer.MIN_VALUE;

  private final NcclConfig defaults = NcclConfig.defaults();

  static Stream<Arguments> settings() {
    NcclConfig config = NcclConfig.defaults();
    return Stream.of(
        setting(config.withCgaClusterSize(0), 0, ncclConfig_t::cgaClusterSize),
        setting(config.withCgaClusterSize(8), 8, ncclConfig_t::cgaClusterSize),
        setting(config.withMaxCtas(5), 5, ncclConfig_t::maxCTAs),
        setting(config.withMaxCtas(5).withMinCtas(3), 3, ncclConfig_t::minCTAs),
        setting(config.withSplitShare(true), 1, ncclConfig_t::splitShare),
        setting(config.withTrafficClass(104), 104, ncclConfig_t::trafficClass),
        setting(config.withCollnetEnable(true), 1, ncclConfig_t::collnetEnable),
        setting(config.withCollnetEnable(false), 0, ncclConfig_t::collnetEnable),
        setting(config.withCtaPolicy(CtaPolicy.DEFAULT), 0, ncclConfig_t::CTAPolicy),
        setting(config.withCtaPolicy(CtaPolicy.EFFICIENCY), 1, ncclConfig_t::CTAPolicy),
        setting(config.withCtaPolicy(CtaPolicy.ZERO), 2, ncclConfig_t::CTAPolicy),
        setting(config.withShrinkShare(true), 1, ncclConfig_t::shrinkShare),
        setting(config.withNvlsCtas(16), 16, ncclConfig_t::nvlsCTAs),
        setting(config.withChannelsPerNetPeer(64), 64, ncclConfig_t::nChannelsPerNetPeer),
        setting(config.withNvlinkCentricScheduling(true), 1, ncclConfig_t::nvlinkCentricSched),
        setting(config.withGraphUsage(GraphUsage.NONE), 0, ncclConfig_t::graphUsageMode),
        setting(config.withGraphUsage(GraphUsage.ONE_GRAPH), 1, ncclConfig_t::graphUsageMode),
        setting(config.withGraphUsage(GraphUsage.MIXED), 2, ncclConfig_t::graphUsageMode),
        setting(config.withRmaContexts(0), 0, ncclConfig_t::numRmaCtx),
        setting(config.withMaxP2pPeers(7), 7, ncclConfig_t::maxP2pPeers),
        setting(config.withGraphStreamOrdering(false), 0, ncclConfig_t::graphStreamOrdering));
  }

  private static Arguments setting(
      NcclConfig config, int value, ToIntFunction<MemorySegment> field) {
    return Arguments.of(config, value, field);
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("settings")
  void settingIsWrittenToItsFieldOnly(
      NcclConfig config, int value, ToIntFunction<MemorySegment> field) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment struct = NativeConfig.of(config, NEWEST, arena);
      assertEquals(value, field.applyAsInt(struct));
      long set =
          Stream.<ToIntFunction<MemorySegment>>of(
                  ncclConfig_t::cgaClusterSize,
                  ncclConfig_t::minCTAs,
                  ncclConfig_t::maxCTAs,
                  ncclConfig_t::splitShare,
                  ncclConfig_t::trafficClass,
                  ncclConfig_t::collnetEnable,
                  ncclConfig_t::CTAPolicy,
                  ncclConfig_t::shrinkShare,
                  ncclConfig_t::nvlsCTAs,
                  ncclConfig_t::nChannelsPerNetPeer,
                  ncclConfig_t::nvlinkCentricSched,
                  ncclConfig_t::graphUsageMode,
                  ncclConfig_t::numRmaCtx,
                  ncclConfig_t::maxP2pPeers,
                  ncclConfig_t::graphStreamOrdering)
              .filter(any -> any.applyAsInt(struct) != UNSET)
              .count();
      assertEquals(config.fields().size(), set);
      assertEquals(MemorySegment.NULL, ncclConfig_t.netName(struct));
    }
  }

  @Test
  void namesAndBlockingAreWritten() {
    CommunicatorConfig common = CommunicatorConfig.defaults().withName("mine").withBlocking(false);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment struct =
          NativeConfig.of(NcclConfig.of(common).withNetName("Socket"), NEWEST, arena);
      assertEquals("mine", ncclConfig_t.commName(struct).getString(0));
      assertEquals("Socket", ncclConfig_t.netName(struct).getString(0));
      assertEquals(0, ncclConfig_t.blocking(struct));
    }
  }

  @Test
  void nameIsAllocatedOnceAndNeverFreed() {
    NcclConfig named = NcclConfig.of(CommunicatorConfig.defaults().withName("kept"));
    MemorySegment first;
    try (Arena arena = Arena.ofConfined()) {
      first = ncclConfig_t.commName(NativeConfig.of(named, NEWEST, arena));
    }
    try (Arena arena = Arena.ofConfined()) {
      assertEquals(first, ncclConfig_t.commName(NativeConfig.of(named, NEWEST, arena)));
    }
    assertEquals("kept", first.getString(0));
  }

  /** The last field of each release's struct, from NCCL's headers. */
  @ParameterizedTest(name = "{0} on {1}")
  @CsvSource({
    "trafficClass, 2.25.1, 2.26.0",
    "collnetEnable, 2.26.6, 2.27.0",
    "CTAPolicy, 2.26.6, 2.27.0",
    "shrinkShare, 2.26.6, 2.27.0",
    "nvlsCTAs, 2.26.6, 2.27.0",
    "nChannelsPerNetPeer, 2.27.7, 2.28.0",
    "nvlinkCentricSched, 2.27.7, 2.28.0",
    "graphUsageMode, 2.28.9, 2.29.0",
    "numRmaCtx, 2.28.9, 2.29.0",
    "maxP2pPeers, 2.29.7, 2.30.0",
    "graphStreamOrdering, 2.30.4, 2.30.5"
  })
  void unsupportedSettingIsRefusedOrIgnored(String field, String found, String needed) {
    NcclConfig config = with(field);
    NcclVersion older = version(found);
    UnsupportedNcclVersionException thrown =
        assertThrows(
            UnsupportedNcclVersionException.class, () -> NativeConfig.check(config, older));
    assertTrue(thrown.function().startsWith("ncclConfig_t." + field + " = "), thrown::toString);
    assertEquals(found, thrown.found());
    assertEquals(needed, thrown.needed());
    NativeConfig.check(config, version(needed));
    NcclConfig warned = config.withUnsupportedConfigPolicy(UnsupportedConfigPolicy.WARN);
    NativeConfig.check(warned, older);
    try (Arena arena = Arena.ofConfined()) {
      NcclConfig none = NcclConfig.defaults();
      byte[] without = bytes(NativeConfig.of(none, older, arena));
      assertEquals(
          java.util.Arrays.toString(without),
          java.util.Arrays.toString(bytes(NativeConfig.of(warned, older, arena))));
    }
  }

  private static byte[] bytes(MemorySegment struct) {
    return struct.toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
  }

  private static NcclConfig with(String field) {
    NcclConfig config = NcclConfig.defaults();
    return Map.ofEntries(
            Map.entry("trafficClass", config.withTrafficClass(1)),
            Map.entry("collnetEnable", config.withCollnetEnable(true)),
            Map.entry("CTAPolicy", config.withCtaPolicy(CtaPolicy.EFFICIENCY)),
            Map.entry("shrinkShare", config.withShrinkShare(true)),
            Map.entry("nvlsCTAs", config.withNvlsCtas(1)),
            Map.entry("nChannelsPerNetPeer", config.withChannelsPerNetPeer(1)),
            Map.entry("nvlinkCentricSched", config.withNvlinkCentricScheduling(true)),
            Map.entry("graphUsageMode", config.withGraphUsage(GraphUsage.NONE)),
            Map.entry("numRmaCtx", config.withRmaContexts(1)),
            Map.entry("maxP2pPeers", config.withMaxP2pPeers(1)),
            Map.entry("graphStreamOrdering", config.withGraphStreamOrdering(true)))
        .get(field);
  }

  private static NcclVersion version(String text) {
    String[] parts = text.split("\\.", -1);
    return new NcclVersion(
        Integer.parseInt(parts[0]) * 10000
            + Integer.parseInt(parts[1]) * 100
            + Integer.parseInt(parts[2]));
  }

  @Test
  void zeroCtaPolicyNeedsItsOwnRelease() {
    NcclVersion older = version("2.27.7");
    NativeConfig.check(defaults.withCtaPolicy(CtaPolicy.EFFICIENCY), older);
    UnsupportedNcclVersionException thrown =
        assertThrows(
            UnsupportedNcclVersionException.class,
            () -> NativeConfig.check(defaults.withCtaPolicy(CtaPolicy.ZERO), older));
    assertEquals("2.28.0", thrown.needed());
  }

  @Test
  void unsupportedNameIsIgnored() {
    NcclConfig named = NcclConfig.of(CommunicatorConfig.defaults().withName("mine"));
    NcclVersion older = version("2.26.6");
    NativeConfig.check(named, older);
    try (Arena arena = Arena.ofConfined()) {
      assertEquals(MemorySegment.NULL, ncclConfig_t.commName(NativeConfig.of(named, older, arena)));
    }
  }

  /** Each wither with a value, its getter, and the expected result. */
  static Stream<Arguments> getters() {
    NcclConfig config = NcclConfig.defaults();
    return Stream.of(
        row(config.withCgaClusterSize(0), NcclConfig::cgaClusterSize, OptionalInt.of(0)),
        row(config.withMinCtas(3), NcclConfig::minCtas, OptionalInt.of(3)),
        row(config.withMaxCtas(5), NcclConfig::maxCtas, OptionalInt.of(5)),
        row(config.withNetName("IB"), NcclConfig::netName, Optional.of("IB")),
        row(config.withSplitShare(true), NcclConfig::splitShare, Optional.of(true)),
        row(config.withTrafficClass(104), NcclConfig::trafficClass, OptionalInt.of(104)),
        row(config.withCollnetEnable(false), NcclConfig::collnetEnable, Optional.of(false)),
        row(
            config.withCtaPolicy(CtaPolicy.EFFICIENCY),
            NcclConfig::ctaPolicy,
            Optional.of(CtaPolicy.EFFICIENCY)),
        row(
            config.withCtaPolicy(CtaPolicy.ZERO),
            NcclConfig::ctaPolicy,
            Optional.of(CtaPolicy.ZERO)),
        row(config.withShrinkShare(false), NcclConfig::shrinkShare, Optional.of(false)),
        row(config.withNvlsCtas(16), NcclConfig::nvlsCtas, OptionalInt.of(16)),
        row(config.withChannelsPerNetPeer(64), NcclConfig::channelsPerNetPeer, OptionalInt.of(64)),
        row(
            config.withNvlinkCentricScheduling(true),
            NcclConfig::nvlinkCentricScheduling,
            Optional.of(true)),
        row(
            config.withGraphUsage(GraphUsage.ONE_GRAPH),
            NcclConfig::graphUsage,
            Optional.of(GraphUsage.ONE_GRAPH)),
        row(config.withRmaContexts(0), NcclConfig::rmaContexts, OptionalInt.of(0)),
        row(config.withMaxP2pPeers(7), NcclConfig::maxP2pPeers, OptionalInt.of(7)),
        row(
            config.withGraphStreamOrdering(true),
            NcclConfig::graphStreamOrdering,
            Optional.of(true)));
  }

  private static Arguments row(
      NcclConfig config, Function<NcclConfig, Object> getter, Object expected) {
    return Arguments.of(config, getter, expected);
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("getters")
  void setValueIsReadAndUnsetValueIsEmpty(
      NcclConfig config, Function<NcclConfig, Object> getter, Object expected) {
    assertEquals(expected, getter.apply(config));
    Object unset = expected instanceof OptionalInt ? OptionalInt.empty() : Optional.empty();
    assertEquals(unset, getter.apply(defaults));
  }

  @Test
  void unsupportedConfigPolicyIsRead() {
    assertEquals(UnsupportedConfigPolicy.REFUSE, defaults.unsupportedConfigPolicy());
    NcclConfig warned =
        defaults.withUnsupportedConfigPolicy(UnsupportedConfigPolicy.WARN).withMaxCtas(1);
    assertEquals(UnsupportedConfigPolicy.WARN, warned.unsupportedConfigPolicy());
  }

  @Test
  void everySettingHasAWitherAndAGetter() {
    Set<String> withers = new TreeSet<>();
    Set<String> others = new TreeSet<>();
    for (Method method : NcclConfig.class.getMethods()) {
      String name = method.getName();
      if (name.startsWith("with")) {
        withers.add(Character.toLowerCase(name.charAt(4)) + name.substring(5));
      } else if (method.getDeclaringClass() == NcclConfig.class) {
        others.add(name);
      }
    }
    others.removeAll(Set.of("of", "defaults", "equals", "hashCode", "toString"));
    assertEquals(withers, others);
  }

  @Test
  void valuesOutOfRangeAreRefused() {
    refused("cgaClusterSize is 9; it must be from 0 to 8", () -> defaults.withCgaClusterSize(9));
    refused("cgaClusterSize is -1; it must be from 0 to 8", () -> defaults.withCgaClusterSize(-1));
    refused("minCtas is 0; it must be 1 or more", () -> defaults.withMinCtas(0));
    refused("maxCtas is 0; it must be 1 or more", () -> defaults.withMaxCtas(0));
    refused("trafficClass is -1; it must be 0 or more", () -> defaults.withTrafficClass(-1));
    refused("nvlsCtas is 0; it must be 1 or more", () -> defaults.withNvlsCtas(0));
    refused(
        "channelsPerNetPeer is 65; it must be from 1 to 64",
        () -> defaults.withChannelsPerNetPeer(65));
    refused("rmaContexts is -1; it must be 0 or more", () -> defaults.withRmaContexts(-1));
    refused("maxP2pPeers is 0; it must be 1 or more", () -> defaults.withMaxP2pPeers(0));
    refused(
        "netName is \" \"; it must name a network and contain no NUL character",
        () -> defaults.withNetName(" "));
    assertThrows(NullPointerException.class, () -> defaults.withNetName(null));
    assertThrows(NullPointerException.class, () -> defaults.withCtaPolicy(null));
    assertThrows(NullPointerException.class, () -> defaults.withCommon(null));
  }

  @Test
  void minCtasNeedsMaxCtas() {
    refused(
        "minCtas is 4 and maxCtas is not set; NCCL takes minCtas only with maxCtas",
        () -> NativeConfig.check(defaults.withMinCtas(4), NEWEST));
    refused(
        "minCtas is 4; it must be at most maxCtas, 3",
        () -> NativeConfig.check(defaults.withMinCtas(4).withMaxCtas(3), NEWEST));
    NativeConfig.check(defaults.withMinCtas(4).withMaxCtas(4), NEWEST);
  }

  @Test
  void configurationsAreValues() {
    NcclConfig changed = defaults.withMaxCtas(2).withNetName("IB");
    assertEquals(changed, NcclConfig.defaults().withNetName("IB").withMaxCtas(2));
    assertEquals(changed.hashCode(), defaults.withNetName("IB").withMaxCtas(2).hashCode());
    assertNotEquals(changed, defaults.withMaxCtas(2));
    assertEquals(
        NcclConfig.of(CommunicatorConfig.defaults()), defaults, "the original is unchanged");
    assertTrue(changed.toString().contains("maxCTAs=2, netName=IB"), changed::toString);
    CommunicatorConfig common = CommunicatorConfig.defaults().withName("other");
    assertEquals(common, changed.withCommon(common).common());
  }

  private static void refused(String message, Runnable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call::run).getMessage());
  }
}
