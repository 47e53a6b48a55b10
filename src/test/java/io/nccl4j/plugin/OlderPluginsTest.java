package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.libraries.OnOlderStandIn;
import java.util.Map;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests that plugins are refused by the name and version of an NCCL that would not call them. */
@OnOlderStandIn
class OlderPluginsTest {
  @ParameterizedTest
  @CsvSource({
    "profiler, a Profiler, 2.29.2",
    "tuner, a Tuner, 2.28.3",
    "environment, an NcclEnvironment, 2.28.7"
  })
  void olderNcclIsRefusedByVersion(String mode, String plugin, String needed) throws Exception {
    String found = System.getProperty("test.nccl.release").equals("2.18") ? "2.18.1" : "2.27.3";
    assertEquals(
        plugin
            + ": needs NCCL "
            + needed
            + " or later, found "
            + found
            + " (INVALID_USAGE, code 5)\n",
        PluginsTest.said(PluginsTest.run(Map.of(), mode)));
  }
}
