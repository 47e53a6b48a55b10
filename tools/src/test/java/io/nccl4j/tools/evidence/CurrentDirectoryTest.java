package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.fixtures.programs.StandIn;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Runs tools in a directory whose files have the names of what they start or what that imports. */
class CurrentDirectoryTest {
  private static final List<String> MODULES =
      List.of("sysconfig.py", "site.py", "os.py", "json.py", "ctypes.py", "sitecustomize.py");
  private static final List<String> PROGRAMS =
      List.of("python3", "nvidia-smi", "ldconfig", "ldd", "mpirun", "sh", "java", "hostname");

  @TempDir Path temp;

  @ParameterizedTest
  @ValueSource(strings = {"doctor", "device"})
  void nothingInCurrentDirectoryIsRun(String tool) throws Exception {
    Path directory = Files.createDirectory(temp.resolve("directory"));
    Path sprung = Files.createDirectory(temp.resolve("sprung"));
    for (String name : MODULES) {
      Files.writeString(
          directory.resolve(name), "open('" + sprung.resolve(name) + "', 'w').close()\n");
    }
    for (String name : PROGRAMS) {
      Path file = directory.resolve(name);
      Files.writeString(file, "#!/bin/sh\n: >" + sprung.resolve(name) + "\n");
      assertTrue(file.toFile().setExecutable(true));
    }
    FinishedProgram ended = run(tool, directory);
    try (Stream<Path> files = Files.list(sprung)) {
      assertEquals(List.of(), files.map(Path::getFileName).toList(), ended.output());
    }
    assertEquals(0, ended.status(), ended.output());
  }

  private FinishedProgram run(String tool, Path directory)
      throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("PATH", ".::" + System.getenv("PATH"));
    List<String> command = new ArrayList<>();
    if (tool.equals("doctor")) {
      command.addAll(FinishedProgram.java("io.nccl4j.tools.doctor.Doctor"));
    } else {
      command.addAll(FinishedProgram.java(Child.class.getName(), tool));
      command.addAll(List.of("--report", temp + "/report.json", "--deadline", "120"));
    }
    return FinishedProgram.run(
        FinishedProgram.builder(environment, command).directory(directory.toFile()));
  }

  @Test
  void relativeFoldersOfPathAreSkipped() throws IOException {
    Path program = Files.createFile(temp.resolve("program"));
    assertTrue(program.toFile().setExecutable(true));
    String relative = new File("").getAbsoluteFile().toPath().relativize(temp).toString();
    assertEquals(
        Stream.of(program).findFirst(),
        EvidencePlan.onPath("program", Map.of("PATH", "::.:" + relative + ":" + temp)));
    assertEquals(
        Stream.<Path>empty().findFirst(), EvidencePlan.onPath("program", Map.of("PATH", relative)));
  }
}
