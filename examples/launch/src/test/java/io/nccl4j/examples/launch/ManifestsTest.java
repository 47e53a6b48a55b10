package io.nccl4j.examples.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Launcher;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Checks the scripts and manifests of this example. */
class ManifestsTest {
  @Test
  void indexedJobStartsAllRanksAtOnce() throws IOException {
    IndexedJob manifest = IndexedJob.read();
    int size = Integer.parseInt(manifest.environment("").get("WORLD_SIZE"));
    assertEquals("batch/v1", manifest.job().get("apiVersion"));
    assertEquals("Indexed", IndexedJob.at(manifest.job(), "spec", "completionMode"));
    assertEquals(size, IndexedJob.at(manifest.job(), "spec", "completions"));
    assertEquals(size, IndexedJob.at(manifest.job(), "spec", "parallelism"));
    assertEquals(0, IndexedJob.at(manifest.job(), "spec", "backoffLimit"));
    assertEquals(
        "Never", IndexedJob.at(manifest.job(), "spec", "template", "spec", "restartPolicy"));
  }

  @Test
  void podHasAllGpusOfANodeAndARankForEach() throws IOException {
    IndexedJob manifest = IndexedJob.read();
    assertEquals(Map.of("nvidia.com/gpu", 8), manifest.container("resources", "limits"));
    List<?> arguments = (List<?>) manifest.container("args");
    assertEquals("8", arguments.get(arguments.indexOf("-g") + 1));
  }

  @Test
  void podHasSharedMemoryForItsRanks() throws IOException {
    IndexedJob manifest = IndexedJob.read();
    assertEquals(
        Map.of("name", "shm", "mountPath", "/dev/shm"), manifest.container("volumeMounts", 0));
    Object volume = IndexedJob.at(manifest.job(), "spec", "template", "spec", "volumes", 0);
    assertEquals(
        Map.of("name", "shm", "emptyDir", Map.of("medium", "Memory", "sizeLimit", "8Gi")), volume);
  }

  @Test
  void podReadsTheSecretFromAMountedFile() throws IOException {
    IndexedJob manifest = IndexedJob.read();
    Map<?, ?> mount = (Map<?, ?>) manifest.container("volumeMounts", 1);
    Map<?, ?> volume =
        (Map<?, ?>) IndexedJob.at(manifest.job(), "spec", "template", "spec", "volumes", 1);
    assertEquals(volume.get("name"), mount.get("name"));
    assertEquals(
        Map.of("secretName", "nccl4j", "defaultMode", "0400"), // octal in YAML 1.1
        volume.get("secret"));
    String variables = manifest.container("env").toString();
    assertTrue(variables.contains("value=" + mount.get("mountPath") + "/secret"), variables);
    assertFalse(variables.contains("valueFrom"), variables);
  }

  @Test
  void masterAddressIsTheNameOfTheFirstPod() throws IOException {
    IndexedJob manifest = IndexedJob.read();
    Object job = IndexedJob.at(manifest.job(), "metadata", "name");
    Object service = IndexedJob.at(manifest.service(), "metadata", "name");
    assertEquals(service, IndexedJob.at(manifest.job(), "spec", "template", "spec", "subdomain"));
    assertEquals("None", IndexedJob.at(manifest.service(), "spec", "clusterIP"));
    assertEquals(true, IndexedJob.at(manifest.service(), "spec", "publishNotReadyAddresses"));
    assertEquals(
        IndexedJob.at(manifest.job(), "spec", "template", "metadata", "labels"),
        IndexedJob.at(manifest.service(), "spec", "selector"));
    assertEquals(job + "-0." + service, manifest.environment("").get("MASTER_ADDR"));
  }

  @Test
  void podVariablesDetermineTheRank() throws IOException {
    Map<String, String> variables = new HashMap<>(IndexedJob.read().environment(""));
    variables.put("JOB_COMPLETION_INDEX", "1");
    LaunchEnvironment launch = LaunchEnvironment.from(variables);
    assertEquals(Launcher.KUBERNETES, launch.launcher());
    assertEquals(List.of(1, 2), List.of(launch.rank(), launch.size()));
    assertEquals("rank 0 at nccl4j-0.nccl4j:29500", launch.idSource());
  }

  @Test
  void batchJobHasATaskForEachGpu() throws IOException {
    Map<String, String> options = new HashMap<>();
    for (String line : Files.readAllLines(Path.of("slurm.sbatch"))) {
      if (line.startsWith("#SBATCH --")) {
        String[] option = line.substring("#SBATCH --".length()).split("=", 2);
        options.put(option[0], option.length == 1 ? "" : option[1]);
      }
    }
    assertEquals("2", options.get("nodes"));
    assertTrue(options.containsKey("exclusive"), options.toString());
    assertEquals(options.get("gpus-per-node"), options.get("ntasks-per-node"));
    assertTrue(options.get("time").matches("\\d\\d:\\d\\d:\\d\\d"), options.toString());
  }

  @ParameterizedTest
  @ValueSource(strings = {"plain.sh", "slurm.sbatch"})
  void scriptsAreBash(String script) throws IOException, InterruptedException {
    Started check = Started.with(Map.of(), List.of("bash", "-n", script));
    assertEquals(0, check.status(), check::toString);
    assertTrue(Files.readString(Path.of(script)).startsWith("#!/usr/bin/env bash\n"));
  }

  @Test
  void shellLoopPrintsItsUsage() throws IOException, InterruptedException {
    Started help = Started.with(Map.of(), List.of("./plain.sh", "--help"));
    assertTrue(
        help.lines().contains("usage: plain.sh [--keep-survivors] RANKS PROGRAM [ARGUMENTS]"),
        help.toString());
    for (List<String> wrong :
        List.of(
            List.of("./plain.sh"),
            List.of("./plain.sh", "0", "true"),
            List.of("./plain.sh", "--keep-survivors"),
            List.of("./plain.sh", "--kept", "2", "true"),
            List.of("./plain.sh", "2"))) {
      Started result = Started.with(Map.of(), wrong);
      assertEquals(2, result.status(), result::toString);
      assertTrue(result.errors().startsWith("usage: "), result::toString);
    }
  }
}
