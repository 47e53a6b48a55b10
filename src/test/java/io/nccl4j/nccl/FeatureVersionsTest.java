package io.nccl4j.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Feature;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.fixtures.libraries.Releases;
import java.util.SortedMap;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Compares the table of first releases with NVIDIA's release tags. */
class FeatureVersionsTest {
  private static final String OLDEST = "2.18";

  @Test
  void tableMatchesReleaseTags() {
    SortedMap<String, String> table = new TreeMap<>();
    for (FeatureVersions row : FeatureVersions.values()) {
      row.functions().forEach(function -> table.put(function, row.version().toString()));
    }
    SortedMap<String, String> tags = Releases.byFunction();
    tags.keySet().removeIf(f -> Releases.compare(tags.get(f), OLDEST) < 0 && !table.containsKey(f));
    assertEquals(tags, table);
  }

  @ParameterizedTest
  @EnumSource
  void everyFeatureHasARow(Feature feature) {
    assertNotNull(FeatureVersions.of(feature));
  }

  @ParameterizedTest
  @CsvSource({
    "22702, ncclCommShrink, 2.27.2, 2.27.3",
    "21900, ncclMemAlloc, 2.19.0, 2.19.1",
    "22806, ncclCommRevoke, 2.28.6, 2.28.7",
    "23003, ncclParamBind, 2.30.3, 2.30.4"
  })
  void olderReleaseIsRefusedWithBothVersions(
      int code, String function, String found, String needed) {
    UnsupportedNcclVersionException thrown =
        assertThrows(
            UnsupportedNcclVersionException.class, () -> new NcclVersion(code).require(function));
    assertEquals(function, thrown.function());
    assertEquals(found, thrown.found());
    assertEquals(needed, thrown.needed());
    new NcclVersion(code + 1).require(function);
  }

  @Test
  void unlistedFunctionIsRefused() {
    IllegalArgumentException thrown =
        assertThrows(
            IllegalArgumentException.class, () -> new NcclVersion(23007).require("ncclCommSplitt"));
    assertEquals(
        "function is ncclCommSplitt, which FeatureVersions does not list", thrown.getMessage());
  }
}
