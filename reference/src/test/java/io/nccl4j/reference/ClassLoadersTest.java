package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests several class loaders with nccl4j in one process. */
@OnStandIn
@Tag("slow")
class ClassLoadersTest {
  @ParameterizedTest
  @CsvSource({"nccl, in turn", "nccl, together", "reference, in turn", "reference, together"})
  void everyLoaderRunsAndIsCollected(String backend, String when) throws Exception {
    Map<String, String> environment =
        Map.of(
            "NCCL4J_NCCL_LIBRARY", Requirement.library("nccl").toString(),
            "NCCL4J_CUDART_LIBRARY", Requirement.library("cudart").toString(),
            "NCCL4J_STANDIN_DEVICES", "2");
    // The JDK's caches have soft references to the last loader, which a full heap would clear.
    List<String> command =
        FinishedProgram.java(
            "-XX:SoftRefLRUPolicyMSPerMB=0", LoaderUser.class.getName(), backend, when);
    FinishedProgram ended = FinishedProgram.run(environment, command);
    assertEquals((backend + "\n").repeat(3) + "0 loaders are left\n", ended.out(), ended.err());
  }
}
