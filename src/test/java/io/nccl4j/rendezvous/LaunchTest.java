package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.LogLines;
import io.nccl4j.internal.util.PortRange;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.FutureTask;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

class LaunchTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(30);

  /** Parses variables like {@code RANK=1 WORLD_SIZE=2}. */
  private static Map<String, String> environment(String text) {
    Map<String, String> variables = new HashMap<>();
    for (String pair : text.isEmpty() ? new String[0] : text.split(" ")) {
      String[] parts = pair.split("=", 2);
      variables.put(parts[0], parts[1]);
    }
    return variables;
  }

  private static LaunchEnvironment launch(String text) {
    return LaunchEnvironment.from(environment(text), Optional::empty);
  }

  private static final String TORCHRUN =
      "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True MASTER_ADDR=h MASTER_PORT=29500 ";
  private static final String SLURM_STEP = "SLURM_JOB_ID=77 SLURM_STEP_ID=0 ";

  private static Stream<Arguments> launches() {
    return Stream.of(
        arguments("", Launcher.NONE, 0, 1, 0, 1),
        arguments("WORLD_SIZE=1", Launcher.NONE, 0, 1, 0, 1),
        arguments("NCCL4J_RANK=2 NCCL4J_WORLD_SIZE=4", Launcher.NCCL4J, 2, 4, -1, -1),
        arguments(
            "NCCL4J_RANK=2 NCCL4J_WORLD_SIZE=4 NCCL4J_LOCAL_RANK=0 NCCL4J_LOCAL_WORLD_SIZE=2"
                + " RANK=7 WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2",
            Launcher.NCCL4J,
            2,
            4,
            0,
            2),
        arguments(
            TORCHRUN + "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
            Launcher.TORCHRUN,
            3,
            4,
            1,
            2),
        arguments(
            TORCHRUN
                + "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 SLURM_PROCID=1 SLURM_NTASKS=2"
                + " JOB_COMPLETION_INDEX=1",
            Launcher.TORCHRUN,
            3,
            4,
            1,
            2),
        arguments("RANK=1 WORLD_SIZE=2", Launcher.PLAIN, 1, 2, -1, -1),
        arguments("RANK= 1  WORLD_SIZE=2".replace("= 1 ", "=1"), Launcher.PLAIN, 1, 2, -1, -1),
        arguments(
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1"
                + " OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=1461583873",
            Launcher.OPEN_MPI,
            1,
            2,
            1,
            2),
        arguments(
            "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 SLURM_PROCID=1 SLURM_NTASKS=2",
            Launcher.OPEN_MPI,
            5,
            8,
            -1,
            -1),
        arguments(
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 RANK=1 WORLD_SIZE=2",
            Launcher.PLAIN,
            1,
            2,
            -1,
            -1),
        arguments(
            "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1",
            Launcher.MPICH,
            1,
            2,
            0,
            1),
        arguments("PMIX_RANK=1 WORLD_SIZE=3", Launcher.PMIX, 1, 3, -1, -1),
        arguments(
            SLURM_STEP
                + "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_NODEID=1"
                + " SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=4(x2)",
            Launcher.SLURM,
            5,
            8,
            1,
            4),
        arguments(
            SLURM_STEP + "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=2 SLURM_NNODES=1",
            Launcher.SLURM,
            0,
            2,
            -1,
            2),
        arguments("SLURM_PROCID=0 SLURM_NTASKS=2", Launcher.SLURM, 0, 2, -1, -1),
        arguments(
            SLURM_STEP + "SLURM_PROCID=1 SLURM_NTASKS=2 PMI_RANK=1 PMI_SIZE=2 PMIX_RANK=1",
            Launcher.SLURM,
            1,
            2,
            -1,
            -1),
        arguments(
            SLURM_STEP + "SLURM_PROCID=1 SLURM_NTASKS=2 RANK=5 WORLD_SIZE=8",
            Launcher.PLAIN,
            5,
            8,
            -1,
            -1),
        arguments("SLURM_JOB_ID=7 SLURM_PROCID=0", Launcher.NONE, 0, 1, 0, 1),
        arguments("SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=1", Launcher.NONE, 0, 1, 0, 1),
        arguments(
            "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=4 RANK=2 WORLD_SIZE=3",
            Launcher.PLAIN,
            2,
            3,
            -1,
            -1),
        arguments("SLURM_JOB_ID=7 SLURM_NTASKS=4", Launcher.NONE, 0, 1, 0, 1),
        arguments("JOB_COMPLETION_INDEX=2 WORLD_SIZE=3", Launcher.KUBERNETES, 2, 3, -1, -1),
        arguments("JOB_COMPLETION_INDEX=2 NCCL4J_WORLD_SIZE=3", Launcher.KUBERNETES, 2, 3, -1, -1),
        arguments("JOB_COMPLETION_INDEX=1 RANK=5 WORLD_SIZE=8", Launcher.PLAIN, 5, 8, -1, -1));
  }

  @ParameterizedTest
  @MethodSource("launches")
  void ranksAndSizesAreRead(
      String variables, Launcher launcher, int rank, int size, int localRank, int localSize) {
    LaunchEnvironment launch = launch(variables);
    assertEquals(launcher, launch.launcher());
    assertEquals(rank, launch.rank());
    assertEquals(size, launch.size());
    assertEquals(optional(localRank), launch.localRank());
    assertEquals(optional(localSize), launch.localSize());
  }

  private static OptionalInt optional(int value) {
    return value < 0 ? OptionalInt.empty() : OptionalInt.of(value);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          RANK=4 WORLD_SIZE=4                    | RANK is 4 and WORLD_SIZE is 4; the rank must be less than the size
          RANK=1                                 | RANK is 1, but WORLD_SIZE is not set
          WORLD_SIZE=2                           | WORLD_SIZE is 2, but RANK is not set
          NCCL4J_WORLD_SIZE=2                    | NCCL4J_WORLD_SIZE is 2, but NCCL4J_RANK is not set
          NCCL4J_RANK=0                          | NCCL4J_RANK is 0, but NCCL4J_WORLD_SIZE is not set
          RANK=one WORLD_SIZE=2                  | RANK is 'one'; it must be a number
          RANK= WORLD_SIZE=2                     | RANK is ''; it must be a number
          RANK=-1 WORLD_SIZE=2                   | RANK is -1; it must be 0 or more
          RANK=0 WORLD_SIZE=0                    | WORLD_SIZE is 0; it must be 1 or more
          RANK=0 WORLD_SIZE=2147483647           | WORLD_SIZE is 2147483647; it must be 1048576 or less
          NCCL4J_RANK=1 NCCL4J_WORLD_SIZE=1048577 | NCCL4J_WORLD_SIZE is 1048577; it must be 1048576 or less
          RANK=2147483647 WORLD_SIZE=2           | RANK is 2147483647; it must be 1048576 or less
          RANK=0 WORLD_SIZE=99999999999          | WORLD_SIZE is '99999999999'; it must be a number
          RANK=0 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2 | LOCAL_RANK is 2 and LOCAL_WORLD_SIZE is 2; the local rank must be less than the size
          RANK=0 WORLD_SIZE=2 LOCAL_RANK=2       | LOCAL_RANK is 2 and WORLD_SIZE is 2; the local rank must be less than the size
          RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3 | LOCAL_WORLD_SIZE is 3 and WORLD_SIZE is 2; the local size must not exceed the size
          RANK=0 WORLD_SIZE=2 MASTER_ADDR=h      | MASTER_ADDR is 'h', but MASTER_PORT is not set
          RANK=0 WORLD_SIZE=2 MASTER_PORT=1      | MASTER_PORT is '1', but MASTER_ADDR is not set
          RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=x | MASTER_PORT has the port 'x'; it must be from 1 to 65535
          RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=0 | MASTER_PORT has the port 0; it must be from 1 to 65535
          TORCHELASTIC_RUN_ID=a                  | TORCHELASTIC_RUN_ID is set, but RANK and WORLD_SIZE are not
          TORCHELASTIC_RUN_ID=a RANK=0           | RANK is 0, but WORLD_SIZE is not set
          TORCHELASTIC_RUN_ID=a TORCHELASTIC_USE_AGENT_STORE=True RANK=0 WORLD_SIZE=2 | TORCHELASTIC_USE_AGENT_STORE is true, but MASTER_ADDR and MASTER_PORT are not set
          TORCHELASTIC_RUN_ID=a TORCHELASTIC_USE_AGENT_STORE=True RANK=0 WORLD_SIZE=2 MASTER_ADDR=h | MASTER_ADDR is 'h', but MASTER_PORT is not set
          OMPI_COMM_WORLD_RANK=1                 | OMPI_COMM_WORLD_RANK is 1, but OMPI_COMM_WORLD_SIZE is not set
          OMPI_COMM_WORLD_SIZE=2                 | OMPI_COMM_WORLD_SIZE is 2, but OMPI_COMM_WORLD_RANK is not set
          PMI_RANK=1                             | PMI_RANK is 1, but PMI_SIZE is not set
          PMIX_RANK=1                            | PMIX_RANK is 1, but PMIx does not set the number of ranks; set WORLD_SIZE
          JOB_COMPLETION_INDEX=1                 | JOB_COMPLETION_INDEX is 1, but Kubernetes does not set the number of ranks
          JOB_COMPLETION_INDEX=3 WORLD_SIZE=3    | JOB_COMPLETION_INDEX is 3 and WORLD_SIZE is 3; the rank must be less than the size
          JOB_COMPLETION_INDEX=3 RANK=0 WORLD_SIZE=4 | RANK is 0 and WORLD_SIZE is 4, but JOB_COMPLETION_INDEX is 3: two launchers disagree
          SLURM_PROCID=3                         | SLURM_PROCID is 3, but SLURM_STEP_NUM_TASKS is not set
          OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 RANK=0 WORLD_SIZE=2 | RANK is 0 and WORLD_SIZE is 2, but OMPI_COMM_WORLD_RANK is 1 and OMPI_COMM_WORLD_SIZE is 2: two launchers disagree
          OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 RANK=0 WORLD_SIZE=1 | RANK is 0 and WORLD_SIZE is 1, but OMPI_COMM_WORLD_RANK is 1
          OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 WORLD_SIZE=4 | OMPI_COMM_WORLD_SIZE is 2, but WORLD_SIZE is 4
          OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2 | OMPI_COMM_WORLD_RANK is 1 and OMPI_COMM_WORLD_SIZE is 2, but PMI_RANK is 0 and PMI_SIZE is 2: two launchers disagree
          OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0 | PMIX_RANK is 0, but OMPI_COMM_WORLD_RANK is 1
          SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 RANK=0 WORLD_SIZE=2 | RANK is 0 and WORLD_SIZE is 2, but SLURM_PROCID is 1 and SLURM_NTASKS is 2: two launchers disagree
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=/tmp/x | NCCL4J_RENDEZVOUS is '/tmp/x'; it must be file:/DIRECTORY (absolute) or tcp://HOST:PORT
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=file:x | NCCL4J_RENDEZVOUS is 'file:x'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://:1 | NCCL4J_RENDEZVOUS is 'tcp://:1'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://[::1 | NCCL4J_RENDEZVOUS is 'tcp://[::1'; it must be file:/DIRECTORY (absolute) or tcp://HOST:PORT, with an IPv6 address in brackets
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://[::1:77 | NCCL4J_RENDEZVOUS is 'tcp://[::1:77'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://::1 | NCCL4J_RENDEZVOUS is 'tcp://::1'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://::1]:77 | NCCL4J_RENDEZVOUS is 'tcp://::1]:77'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://h:1:77 | NCCL4J_RENDEZVOUS is 'tcp://h:1:77'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://[] | NCCL4J_RENDEZVOUS is 'tcp://[]'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://[]:77 | NCCL4J_RENDEZVOUS is 'tcp://[]:77'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=file:/tmp/\uD800 | which cannot be named in this locale; set LC_ALL=C.UTF-8
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://h:1/x | NCCL4J_RENDEZVOUS is 'tcp://h:1/x'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://h:99999 | NCCL4J_RENDEZVOUS has the port 99999; it must be from 1 to 65535
          RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS= | NCCL4J_RENDEZVOUS is ''; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_PORTS=29600-29500 | NCCL4J_PORTS is '29600-29500'; it must be FIRST-LAST, such as 29500-29600, with ports from 1 to 65535
          RANK=0 WORLD_SIZE=2 NCCL4J_PORTS=0-10 | NCCL4J_PORTS is '0-10'; it must be
          RANK=0 WORLD_SIZE=2 NCCL4J_PORTS=1-65536 | NCCL4J_PORTS is '1-65536'; it must be
          NCCL4J_PORTS=some | NCCL4J_PORTS is 'some'; it must be
          """)
  void invalidVariablesAreNamedWithTheirValues(String variables, String message) {
    IllegalArgumentException thrown =
        assertThrows(IllegalArgumentException.class, () -> launch(variables));
    assertTrue(thrown.getMessage().contains(message), thrown.getMessage());
  }

  @Test
  void rendezvousHasTheLocalRank(@TempDir Path directory) {
    LaunchEnvironment launch =
        launch(
            "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1"
                + " NCCL4J_RENDEZVOUS=file:"
                + directory);
    try (Rendezvous rendezvous = launch.rendezvous(TIMEOUT)) {
      assertEquals(OptionalInt.of(1), rendezvous.localRank());
    }
  }

  @Test
  void contradictionMessageSaysWhatToSet() {
    IllegalArgumentException thrown =
        assertThrows(
            IllegalArgumentException.class,
            () -> launch("PMI_RANK=1 PMI_SIZE=2 RANK=0 WORLD_SIZE=2"));
    assertTrue(
        thrown.getMessage().contains("set NCCL4J_RANK and NCCL4J_WORLD_SIZE"), thrown.getMessage());
  }

  private static final String TMP = System.getProperty("java.io.tmpdir");

  private static Stream<Arguments> sources() {
    String oneHost = "files in a private directory under " + TMP;
    return Stream.of(
        arguments("", "this process alone"),
        arguments("RANK=0 WORLD_SIZE=1", "this process alone"),
        arguments("RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=file:/shared/ids", "files in /shared/ids"),
        arguments("RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=file:///shared", "files in /shared"),
        arguments("RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=file:///a%20b%25", "files in /a b%"),
        arguments("RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://n1:77", "rank 0 at n1:77"),
        arguments("RANK=0 WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://[::1]:77", "rank 0 at ::1:77"),
        arguments("RANK=0 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500", "rank 0 at n1:29500"),
        arguments(
            "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500",
            "rank 0 at n1:29500"),
        arguments(
            TORCHRUN + "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2",
            "the store of torchrun's agent at h:29500"),
        arguments(
            TORCHRUN + "RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2",
            "the store of torchrun's agent at h:29500"),
        arguments(TORCHRUN + "RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1", "this process alone"),
        arguments(
            TORCHRUN.replace("True", "False") + "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2",
            "rank 0 at h:29500"),
        arguments(
            TORCHRUN.replace("True", "False") + "RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2",
            "rank 0 at h:29500"),
        arguments(
            TORCHRUN + "RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 NCCL4J_RENDEZVOUS=tcp://h:4711",
            "rank 0 at h:4711"),
        arguments(
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2"
                + " PMIX_RANK=0 PMIX_NAMESPACE=1461583873",
            oneHost),
        arguments(SLURM_STEP + "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=1", oneHost),
        arguments(
            SLURM_STEP
                + "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=2"
                + " SLURM_STEP_NODELIST=gpu[07-09,12],login1",
            "rank 0 at gpu07:" + Slurm.port("slurm 77.0", Optional.empty())),
        arguments(
            SLURM_STEP
                + "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a,b"
                + " NCCL4J_PORTS=29500",
            "rank 0 at a:29500"));
  }

  @ParameterizedTest
  @MethodSource("sources")
  void endpointIsChosenFromTheEnvironment(String variables, String source) {
    LaunchEnvironment launch = launch(variables);
    assertEquals(source, launch.idSource());
    assertTrue(launch.toString().contains("id from " + source), launch.toString());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          RANK=0 WORLD_SIZE=2 | nothing from plain variables says where the 2 ranks exchange the id
          JOB_COMPLETION_INDEX=0 WORLD_SIZE=2 | nothing from Kubernetes says where the 2 ranks exchange the id
          OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=1 | nothing from Open MPI says where the 4 ranks exchange the id
          PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2 | nothing from MPICH says where the 2 ranks exchange the id
          """)
  void unknownEndpointErrorSaysWhatToSet(String variables, String message) {
    LaunchEnvironment launch = launch(variables);
    IllegalArgumentException thrown =
        assertThrows(IllegalArgumentException.class, () -> launch.rendezvous(TIMEOUT));
    assertTrue(thrown.getMessage().startsWith(message), thrown.getMessage());
    assertTrue(
        thrown.getMessage().contains("set NCCL4J_RENDEZVOUS=tcp://HOST:PORT"), thrown.getMessage());
  }

  /** Environments of a process that was not started as its job needs it. */
  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=4                       | SLURM_NTASKS is 4, but SLURM_STEP_ID is not set: this is the job's script or shell, not one of its tasks; start the program with srun
          SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS_PER_NODE=8              | SLURM_NTASKS_PER_NODE is 8, but SLURM_STEP_ID is not set
          SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_JOB_NUM_NODES=2                | SLURM_JOB_NUM_NODES is 2, but SLURM_STEP_ID is not set
          SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=4 WORLD_SIZE=4          | WORLD_SIZE is 4, but RANK is not set
          SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=2 | nothing from Slurm says where the 2 ranks exchange the id; set NCCL4J_RENDEZVOUS=tcp://HOST:PORT
          OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 | nothing from Open MPI says where the 4 ranks exchange the id; set
          PMI_RANK=1 PMI_SIZE=4                                              | nothing from MPICH says where the 4 ranks exchange the id; set
          PMIX_RANK=1                                                        | PMIx does not set the number of ranks; set WORLD_SIZE
          PMIX_RANK=1 WORLD_SIZE=2                                           | nothing from PMIx says where the 2 ranks exchange the id; set
          JOB_COMPLETION_INDEX=1                                             | Kubernetes does not set the number of ranks; set WORLD_SIZE
          JOB_COMPLETION_INDEX=1 WORLD_SIZE=2                                | nothing from Kubernetes says where the 2 ranks exchange the id; set
          RANK=1 WORLD_SIZE=2                                                | nothing from plain variables says where the 2 ranks exchange the id; set
          RANK=1                                                             | RANK is 1, but WORLD_SIZE is not set
          TORCHELASTIC_RUN_ID=none                                           | torchrun sets all three
          PMI_RANK=1 PMI_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 | two launchers disagree; unset the variables of the launcher that did not start this process
          RANK=0 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500               | needs a secret. Give all ranks the same random text in a file
          """)
  void processStartedWronglyFailsAtOnceWithRemedy(String variables, String message) {
    IllegalArgumentException thrown =
        assertThrows(
            IllegalArgumentException.class, () -> launch(variables).rendezvous(TIMEOUT).close());
    assertTrue(thrown.getMessage().contains(message), thrown.getMessage());
  }

  /** A process may run alone there, but was probably meant to be one of several. */
  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          NCCL4J_RENDEZVOUS=tcp://n1:29500   | NCCL4J_RENDEZVOUS is set, but no variable has this process's rank, so it runs alone; if it is one of several, set RANK and WORLD_SIZE
          MASTER_ADDR=n1 MASTER_PORT=29500   | MASTER_ADDR is set, but no variable has
          LOCAL_RANK=1                       | LOCAL_RANK is set, but no variable has
          NCCL4J_LOCAL_RANK=1                | NCCL4J_LOCAL_RANK is set, but no variable has
          """)
  void processThatMayBeOneOfSeveralIsWarned(String variables, String message) {
    assertWarned(ProcessRank.class, variables, message);
  }

  @Test
  void shellOfJobWithSeveralTasksIsWarned() {
    assertWarned(
        Slurm.class,
        "SLURM_JOB_ID=7 SLURM_NTASKS=4",
        "SLURM_NTASKS is 4, but SLURM_STEP_ID is not set: this is the job's script or shell, not"
            + " one of its tasks; start the program with srun");
  }

  /** Outside a job they are srun's options, which may be ranges. */
  @Test
  void optionsOfSrunOutsideAJobAreNotRead() {
    assertEquals(Launcher.NONE, launch("SLURM_NNODES=2-4 SLURM_NTASKS_PER_NODE=0").launcher());
  }

  private static void assertWarned(Class<?> by, String variables, String message) {
    try (LogLines log = new LogLines(by)) {
      assertEquals(Launcher.NONE, launch(variables).launcher());
      assertEquals(1, log.lines().size(), log.lines().toString());
      assertTrue(log.lines().getFirst().startsWith(message), log.lines().toString());
    }
  }

  /** All ranks that mpirun starts in a batch script inherit the script's variables of Slurm. */
  @Test
  void ranksOfMpirunInBatchScriptAgreeOnTheirLauncher() {
    String batch = "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=2 ";
    try (LogLines log = new LogLines(Slurm.class)) {
      for (int rank = 0; rank < 2; rank++) {
        LaunchEnvironment mpich = launch(batch + "PMI_SIZE=2 PMI_RANK=" + rank);
        assertEquals(Launcher.MPICH, mpich.launcher());
        assertEquals(rank, mpich.rank());
        String openMpi = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=";
        assertEquals(Launcher.OPEN_MPI, launch(batch + openMpi + rank).launcher());
      }
      assertEquals(List.of(), log.lines());
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      nullValues = "-",
      textBlock =
          """
          RANK=0 WORLD_SIZE=2 | ''
          RANK=0 WORLD_SIZE=2 NCCL4J_RUN_ID=mine | mine
          RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=abc MASTER_ADDR=h MASTER_PORT=5 | torchrun abc h:5
          OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=1461583873 | pmix 1461583873
          OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_ess_base_jobid=99 | pmix 99
          SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=12 SLURM_STEP_ID=3 | slurm 12.3
          PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 | hydra proxy 1
          """)
  void jobIdIsTakenFromTheLauncher(String variables, String run) {
    LaunchEnvironment launch =
        LaunchEnvironment.from(environment(variables), () -> Optional.of("proxy 1"));
    assertEquals(run, launch.jobId());
  }

  /** Each host has its own proxy. */
  @Test
  void mpichRanksOnTwoHostsHaveTheSameJobId() {
    String variables = " PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1";
    LaunchEnvironment first =
        LaunchEnvironment.from(environment("PMI_RANK=0" + variables), () -> Optional.of("proxy 1"));
    LaunchEnvironment second =
        LaunchEnvironment.from(environment("PMI_RANK=1" + variables), () -> Optional.of("proxy 2"));
    assertEquals(first.jobId(), second.jobId());
  }

  @Test
  void mpichOnOneHostUsesFiles() {
    LaunchEnvironment launch =
        LaunchEnvironment.from(
            environment("PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2"),
            () -> Optional.of("proxy 1"));
    assertEquals("files in a private directory under " + TMP, launch.idSource());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          node1               | node1
          node[01-03,07],x    | node01
          gpu-a,gpu-b         | gpu-a
          rack[2-3]n[5,7-9]   | rack2n5
          n[11].cluster       | n11.cluster
          """)
  void firstNodeOfAListIsFound(String list, String first) {
    assertEquals(first, Slurm.firstOf(list));
  }

  @Test
  void tasksOfANodeAreFound() {
    assertEquals(OptionalInt.of(4), Slurm.tasksOfNode("4(x2),3", 1));
    assertEquals(OptionalInt.of(3), Slurm.tasksOfNode("4(x2),3", 2));
    assertThrows(IllegalArgumentException.class, () -> Slurm.tasksOfNode("4(x2),3", 3));
    assertThrows(IllegalArgumentException.class, () -> Slurm.tasksOfNode("four", 0));
  }

  @Test
  void stepPortsAreBelowTheEphemeralRange() {
    for (int job = 0; job < 1000; job++) {
      int port = Slurm.port("slurm " + job + ".0", Optional.empty());
      assertTrue(port >= 16384 && port < 32768, () -> "port " + port);
    }
  }

  @Test
  void stepPortsAreInTheRangeOfPorts() {
    Optional<PortRange> ports = PortRange.of("NCCL4J_PORTS", "29500-29509");
    for (int job = 0; job < 1000; job++) {
      int port = Slurm.port("slurm " + job + ".0", ports);
      assertTrue(port >= 29500 && port < 29510, () -> "port " + port);
    }
  }

  @Test
  void networkRequiresASecret() {
    LaunchEnvironment launch = launch("RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500");
    IllegalArgumentException thrown =
        assertThrows(IllegalArgumentException.class, () -> launch.rendezvous(TIMEOUT));
    assertTrue(
        thrown.getMessage().startsWith("neither NCCL4J_SECRET_FILE nor NCCL4J_SECRET is set"),
        thrown.getMessage());

    LaunchEnvironment weak =
        launch("RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500 NCCL4J_SECRET=short");
    assertEquals(
        "NCCL4J_SECRET has 5 bytes; it must have 16 or more, and be random",
        assertThrows(IllegalArgumentException.class, () -> weak.rendezvous(TIMEOUT)).getMessage());
    assertFalse(weak.toString().contains("short"), weak.toString());

    try (Rendezvous rendezvous =
        launch(
                "RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500"
                    + " NCCL4J_SECRET=0123456789abcdef")
            .rendezvous(TIMEOUT)) {
      assertEquals(
          "Rendezvous[rank 1 of 2 at the store of rank 0 at n1:29500]", rendezvous.toString());
    }
  }

  @Test
  void loopbackNeedsNoSecret() {
    try (Rendezvous rendezvous =
        launch("RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500").rendezvous(TIMEOUT)) {
      assertEquals(
          "Rendezvous[rank 1 of 2 at the store of rank 0 at 127.0.0.1:29500]",
          rendezvous.toString());
    }
  }

  @Test
  void singleProcessNeedsNoEndpoint() {
    try (Rendezvous alone = LaunchEnvironment.from(Map.of()).rendezvous(TIMEOUT)) {
      UniqueId id = RankThreads.newId();
      assertEquals(id, alone.exchange(() -> id));
      assertEquals(1, alone.size());
    }
  }

  @Test
  void ranksExchangeTheIdInAGivenDirectory(@TempDir Path directory) throws Exception {
    String common = "NCCL4J_WORLD_SIZE=2 NCCL4J_RENDEZVOUS=file:" + directory + " ";
    FutureTask<Void> other =
        RankThreads.start(
            () -> {
              RankThreads.exchange(
                  2,
                  2,
                  rank ->
                      launch(common + "NCCL4J_RUN_ID=other NCCL4J_RANK=" + rank)
                          .rendezvous(TIMEOUT));
              return null;
            });
    RankThreads.exchange(2, 2, rank -> launch(common + "NCCL4J_RANK=" + rank).rendezvous(TIMEOUT));
    RankThreads.join(other);
  }

  @Test
  void systemWithoutProcessDirectoryIsRefused(@TempDir Path temporary) {
    Path absent = temporary.resolve("proc/self");
    IOException refused =
        assertThrows(IOException.class, () -> PrivateDirectory.userNumber(absent));
    assertTrue(refused.getMessage().contains("needs Linux"), refused.getMessage());
  }

  @Test
  void privateDirectoryIsAccessibleToThisUserOnly(@TempDir Path temporary) throws Exception {
    Path directory = PrivateDirectory.under(temporary);
    assertEquals(directory, PrivateDirectory.under(temporary));
    assertEquals(
        PosixFilePermissions.fromString("rwx------"), Files.getPosixFilePermissions(directory));
    Files.setPosixFilePermissions(directory, PosixFilePermissions.fromString("rwxrwxrwx"));
    RendezvousException open =
        assertThrows(RendezvousException.class, () -> PrivateDirectory.under(temporary));
    assertTrue(open.getMessage().contains(directory.toString()), open.getMessage());
    Path elsewhere = Files.createDirectory(temporary.resolve("elsewhere"));
    Files.delete(directory);
    Files.createSymbolicLink(directory, elsewhere);
    assertThrows(RendezvousException.class, () -> PrivateDirectory.under(temporary));
  }
}
