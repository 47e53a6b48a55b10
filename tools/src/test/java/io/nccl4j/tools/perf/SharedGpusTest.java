package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import org.junit.jupiter.api.Test;

/** Ranks share a GPU only if NCCL allows it. */
class SharedGpusTest {
  private static final String UNSET =
      "each rank needs its own, unless NCCL_MULTI_RANK_GPU_ENABLE=1 is set";

  private static String refusal(String nccl, String value) {
    return SharedGpus.refusal(nccl, Map.of("NCCL_MULTI_RANK_GPU_ENABLE", value));
  }

  @Test
  void nonZeroNumberAllowsSharing() {
    assertEquals("", refusal("2.30.7", "1"));
    assertEquals("", refusal("2.30.0", " 0x2"));
    assertEquals("", refusal("3.0.1", "-1"));
  }

  @Test
  void zeroAndOtherTextDoNotAllowSharing() {
    for (String value : new String[] {"0", "", "yes"}) {
      assertEquals(UNSET, refusal("2.30.7", value), value);
    }
    assertEquals(UNSET, SharedGpus.refusal("2.30.7", Map.of()));
  }

  @Test
  void olderReleaseNeverAllowsSharing() {
    assertEquals(
        "each rank needs its own (sharing needs NCCL 2.30, this is 2.28.9)",
        refusal("2.28.9", "1"));
  }
}
