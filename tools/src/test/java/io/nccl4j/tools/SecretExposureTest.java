package io.nccl4j.tools;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The commands' reports, which users send to others, do not contain the job's secret. */
@Tag("slow")
class SecretExposureTest {
  private static final String SECRET = "e8a1f0c2-correct-horse-battery-staple";

  @TempDir Path folder;

  private static String output(String command, String... arguments) throws Exception {
    FinishedProgram ended =
        FinishedProgram.run(
            Map.of("NCCL4J_SECRET", SECRET, "NCCL4J_SECRT", SECRET),
            FinishedProgram.java(
                Stream.concat(Stream.of(command), Arrays.stream(arguments))
                    .toArray(String[]::new)));
    assertTrue(ended.status() <= 1, ended.output());
    return ended.output();
  }

  @Test
  void doctorDoesNotReportTheSecret() throws Exception {
    String text = output("io.nccl4j.tools.doctor.Doctor");
    assertTrue(text.contains("NCCL4J_SECRT is not a variable of nccl4j"), text);
    assertFalse(text.contains(SECRET), text);
    String json = output("io.nccl4j.tools.doctor.Doctor", "--json");
    assertTrue(json.contains("NCCL4J_SECRT is not a variable of nccl4j"), json);
    assertFalse(json.contains(SECRET), json);
  }

  @Test
  void bandwidthReportDoesNotHaveTheSecret() throws Exception {
    Path json = folder.resolve("result.json");
    Path page = folder.resolve("page.html");
    String sizes = "all_reduce --backend reference --procs 2 -b 1K -e 1K -n 1 -w 0";
    String[] arguments = (sizes + " -J " + json + " --html " + page).split(" ", -1);
    String text = output("io.nccl4j.tools.perf.Perf", arguments);
    assertTrue(text.contains("# Out of bounds values : 0 OK"), text);
    assertFalse((text + Files.readString(json) + Files.readString(page)).contains(SECRET), text);
  }
}
