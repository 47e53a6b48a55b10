package io.nccl4j.emulation;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.tools.Nccl4j;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Installs nccl4j's plugins in NVIDIA's NCCL on the emulated CUDA, in a new process. */
@Timeout(120)
class EmulatedPluginsTest {
  @Test
  void tunerTurnsRingIntoTreeAndProfilerSeesIt() throws Exception {
    Map<String, String> environment = EmulatedNccl.environment(2);
    environment.put("NCCL_MAX_CTAS", "2");
    FinishedProgram program =
        FinishedProgram.run(
            environment, FinishedProgram.java(PluggedRanks.class.getName(), "all", "1"));
    assertEquals(0, program.status(), program::output);
    List<String> lines =
        program.out().lines().filter(l -> l.startsWith("> ")).map(l -> l.substring(2)).toList();
    assertEquals(
        List.of("AllReduce 262144 TREE SIMPLE", "AllReduce 1 RING LL"),
        lines.stream().filter(line -> line.startsWith("AllReduce")).toList());
    assertTrue(
        lines.containsAll(
            List.of(
                "maximum 1.0",
                "ring is cheaper: true",
                "destroyed true",
                "dropped 0",
                "asked NCCL_PROFILER_PLUGIN",
                "asked NCCL_TUNER_PLUGIN",
                "asked NCCL_PROTO")),
        lines::toString);
    int begun = Collections.frequency(lines, "kernel of channel 0 begun");
    begun += Collections.frequency(lines, "kernel of channel 1 begun");
    assertTrue(begun >= 4, lines::toString);
    assertEquals(begun, Collections.frequency(lines, "kernel ended"), lines::toString);
  }

  @Test
  void bandwidthTestForcesAndShowsWhatNcclUses() throws Exception {
    String arguments =
        "perf all_reduce --backend nccl -g 2 -b 1K -e 1M -f 1024 -n 2 -w 0 --show-algorithm"
            + " --algo tree:..1K,ring:1M.. --proto simple";
    List<String> command = FinishedProgram.java(Nccl4j.class.getName());
    command.addAll(List.of(arguments.split(" ")));
    FinishedProgram program = FinishedProgram.run(EmulatedNccl.environment(2), command);
    assertEquals(0, program.status(), program::output);
    assertEquals(
        List.of("TREE/SIMPLE", "TREE/SIMPLE", "RING/SIMPLE", "RING/SIMPLE"),
        Pattern.compile("[A-Z]+/SIMPLE(?=/\\d)").matcher(program.out()).results()
            .map(MatchResult::group).toList(),
        program::output);
  }
}
