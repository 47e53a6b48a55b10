package io.nccl4j.nccl;

import io.nccl4j.Feature;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The first NCCL release of each feature, and the functions of that feature. Both {@link
 * io.nccl4j.Backend#supports} and {@link NcclVersion#require(String)} use this table. Functions of
 * the oldest supported release are listed only if they belong to a feature.
 */
@SuppressWarnings("ImmutableEnumChecker") // A record of an int, and List.of.
enum FeatureVersions {
  GRAPHS(2, 9, 6, Feature.GRAPHS),
  PRE_MUL_SUM(2, 11, 4, Feature.PRE_MUL_SUM, "ncclRedOpCreatePreMulSum", "ncclRedOpDestroy"),
  SPLIT(2, 18, 1, Feature.SPLIT, "ncclCommSplit"),
  REGISTRATION(
      2,
      19,
      1,
      Feature.REGISTRATION,
      "ncclCommRegister",
      "ncclCommDeregister",
      "ncclMemAlloc",
      "ncclMemFree"),
  GROUP_ESTIMATES(2, 22, 3, Feature.GROUP_ESTIMATES, "ncclGroupSimulateEnd"),
  SEVERAL_IDS(2, 23, 4, Feature.SEVERAL_IDS, "ncclCommInitRankScalable"),
  FLOAT8_DATA(2, 24, 3, Feature.FLOAT8_DATA),
  // Also depends on the devices.
  FLOAT8_REDUCTION(2, 24, 3, Feature.FLOAT8_REDUCTION),
  LOGGING_AGAIN(2, 24, 3, null, "ncclResetDebugInit"),
  SHRINK(2, 27, 3, Feature.SHRINK, "ncclCommShrink"),
  WINDOWS(2, 27, 3, Feature.WINDOWS, "ncclCommWindowRegister", "ncclCommWindowDeregister"),
  // On older releases nccl4j uses sends and receives.
  EXCHANGES(2, 28, 3, null, "ncclAlltoAll", "ncclGather", "ncclScatter"),
  REVOKE(2, 28, 7, Feature.REVOKE, "ncclCommRevoke"),
  GROW(2, 29, 2, Feature.GROW, "ncclCommGrow", "ncclCommGetUniqueId"),
  ONE_SIDED(2, 29, 2, Feature.ONE_SIDED, "ncclPutSignal", "ncclSignal", "ncclWaitSignal"),
  WINDOW_ADDRESSES(
      2,
      29,
      2,
      Feature.WINDOW_ADDRESSES,
      "ncclWinGetUserPtr",
      "ncclGetPeerDevicePointer",
      "ncclGetLsaMultimemDevicePointer"),
  PROPERTIES(2, 29, 2, Feature.PROPERTIES, "ncclCommQueryProperties"),
  STRICT_ORDERING(2, 29, 7, null),
  SUSPEND(2, 29, 7, Feature.SUSPEND, "ncclCommSuspend", "ncclCommResume"),
  MEMORY_STATISTICS(2, 29, 7, Feature.MEMORY_STATISTICS, "ncclCommMemStats"),
  PARAMETERS(
      2,
      30,
      4,
      Feature.PARAMETERS,
      "ncclParamBind",
      "ncclParamDumpAll",
      "ncclParamGet",
      "ncclParamGetAllParameterKeys",
      "ncclParamGetI8",
      "ncclParamGetI16",
      "ncclParamGetI32",
      "ncclParamGetI64",
      "ncclParamGetParameter",
      "ncclParamGetStr",
      "ncclParamGetU8",
      "ncclParamGetU16",
      "ncclParamGetU32",
      "ncclParamGetU64");

  private static final Map<Feature, FeatureVersions> BY_FEATURE = new EnumMap<>(Feature.class);
  private static final Map<String, FeatureVersions> BY_FUNCTION = new HashMap<>();

  static {
    for (FeatureVersions row : values()) {
      if (row.feature != null) {
        BY_FEATURE.put(row.feature, row);
      }
      row.functions.forEach(function -> BY_FUNCTION.put(function, row));
    }
  }

  private final NcclVersion version;
  private final Feature feature;
  private final List<String> functions;

  FeatureVersions(int major, int minor, int patch, Feature feature, String... functions) {
    this.version = NcclVersion.of(major, minor, patch);
    this.feature = feature;
    this.functions = List.of(functions);
  }

  /** Returns the row of a feature. Every feature has one. */
  static FeatureVersions of(Feature feature) {
    return BY_FEATURE.get(feature);
  }

  /**
   * Returns the row of a function.
   *
   * @throws IllegalArgumentException if no row lists it
   */
  static FeatureVersions of(String function) {
    FeatureVersions row = BY_FUNCTION.get(function);
    if (row == null) {
      throw new IllegalArgumentException(
          "function is " + function + ", which FeatureVersions does not list");
    }
    return row;
  }

  NcclVersion version() {
    return version;
  }

  List<String> functions() {
    return functions;
  }
}
