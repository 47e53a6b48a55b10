package io.nccl4j.examples.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.examples.hello.Hello;
import io.nccl4j.tools.perf.Perf;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Programs started by real launchers, or with the variables of launchers that are unavailable. */
@Tag("slow")
class LaunchersTest {
  private static final Path HERE = Path.of("").toAbsolutePath();

  /** Allows Open MPI to run as root, and to start more ranks than there are processors. */
  private static final Map<String, String> OPEN_MPI =
      Map.of(
          "OMPI_ALLOW_RUN_AS_ROOT", "1",
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1",
          "OMPI_MCA_rmaps_base_oversubscribe", "1");

  @TempDir Path folder;

  private String secretFile() throws IOException {
    Path file = folder.resolve("secret");
    Files.writeString(file, "0123456789abcdef");
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
    return file.toString();
  }

  private static List<String> command(List<String> launcher, List<String> program) {
    return Stream.concat(launcher.stream(), program.stream()).toList();
  }

  private static List<String> hello(Map<String, String> environment, List<String> launcher)
      throws IOException, InterruptedException {
    return Started.with(environment, command(launcher, Started.java(Hello.class))).lines();
  }

  /** The output lines of hello on all ranks, without the parts that vary. */
  private static List<String> ranks(int size, String started) {
    return IntStream.range(0, size).mapToObj(rank -> line(rank, size, started)).toList();
  }

  private static String line(int rank, int size, String started) {
    return "reference: rank %d of %d has the sum of 1000 elements, OK; started by %s"
        .formatted(rank, size, started);
  }

  private static List<String> withoutPort(List<String> lines) {
    return lines.stream().map(line -> line.replaceFirst(":\\d+$", "")).toList();
  }

  private static String file() {
    return "files in a private directory under " + System.getProperty("java.io.tmpdir");
  }

  @Test
  void openMpiStartsRanks() throws IOException, InterruptedException {
    List<String> launcher = List.of(Programs.openMpi(), "-n", "3");
    assertEquals(ranks(3, "Open MPI, id from " + file()), hello(OPEN_MPI, launcher));
  }

  @Test
  void mpichStartsRanks() throws IOException, InterruptedException {
    List<String> launcher = List.of(Programs.mpich(), "-n", "3");
    assertEquals(ranks(3, "MPICH, id from " + file()), hello(Map.of(), launcher));
  }

  private static final String AGENT = "torchrun, id from the store of torchrun's agent at ";

  @Test
  void torchrunRanksUseTheAgentsStore() throws IOException, InterruptedException {
    List<String> launcher = List.of(Programs.torchrun(), "--no-python", "--nproc-per-node", "3");
    List<String> lines = hello(Map.of(), launcher);
    assertEquals(3, lines.size(), lines.toString());
    for (int rank = 0; rank < 3; rank++) {
      assertTrue(lines.get(rank).startsWith(line(rank, 3, AGENT)), lines.get(rank));
    }
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }

  /** Starts two agents, as on two hosts. */
  private static List<Started> agents(int ranksEach, List<String> options, List<String> program)
      throws IOException {
    List<Started> agents = new ArrayList<>();
    for (int node = 0; node < 2; node++) {
      List<String> torchrun =
          List.of(
              Programs.torchrun(),
              "--no-python",
              "--nnodes=2",
              "--node-rank=" + node,
              "--nproc-per-node=" + ranksEach);
      agents.add(Started.with(Map.of(), command(command(torchrun, options), program)));
    }
    return agents;
  }

  private static List<String> lines(List<Started> agents) throws IOException, InterruptedException {
    List<String> lines = new ArrayList<>();
    for (Started agent : agents) {
      lines.addAll(agent.lines());
    }
    return lines.stream().sorted().toList();
  }

  private static List<String> c10d(int port) {
    return List.of("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:" + port, "--max-restarts=1");
  }

  @Test
  void ranksOfTwoAgentsUseTheFirstAgentsStore() throws IOException, InterruptedException {
    List<String> fixed = List.of("--master-addr=localhost", "--master-port=" + freePort());
    List<String> lines = lines(agents(2, fixed, Started.java(Hello.class)));
    assertEquals(ranks(4, AGENT + "localhost"), withoutPort(lines));
  }

  @Test
  void ranksRestartedByTorchrunGetANewCommunicator() throws IOException, InterruptedException {
    String once = "\"$@\"; s=$?; [[ $RANK$TORCHELASTIC_RESTART_COUNT == 10 ]] && exit 3; exit $s";
    List<String> launcher =
        List.of(
            Programs.torchrun(),
            "--no-python",
            "--nproc-per-node=2",
            "--max-restarts=1",
            "bash",
            "-c",
            once,
            "once");
    List<String> lines = withoutPort(hello(Map.of(), launcher));
    // Rank 0 of the first attempt may have been killed before it printed its line.
    assertEquals(ranks(2, AGENT + "localhost"), lines.stream().distinct().toList());
    assertEquals(2, lines.stream().filter(line -> line.contains("rank 1")).count());
  }

  @Test
  void agentsWithDifferentRestartCountsExchangeAnId() throws IOException, InterruptedException {
    // Rank 1 dies while rank 0 waits for it. Only its own agent counts that as a restart.
    String dying =
        "if [[ $RANK$TORCHELASTIC_RESTART_COUNT == 10 ]]; then sleep 2; exit 3; fi;"
            + " \"$@\" && echo restarts $TORCHELASTIC_RESTART_COUNT of rank $RANK";
    List<String> program =
        command(List.of("bash", "-c", dying, "dying"), Started.java(Hello.class));
    List<String> lines = new ArrayList<>(ranks(2, AGENT + "localhost"));
    lines.addAll(List.of("restarts 0 of rank 0", "restarts 1 of rank 1"));
    assertEquals(lines, withoutPort(lines(agents(1, c10d(freePort()), program))));
  }

  @Test
  void shellLoopStartsRanks() throws IOException, InterruptedException {
    List<String> lines = hello(Map.of(), List.of(HERE.resolve("plain.sh").toString(), "3"));
    assertEquals(3, lines.size(), lines.toString());
    for (int rank = 0; rank < 3; rank++) {
      String expected = line(rank, 3, "plain variables, id from files in /");
      assertTrue(lines.get(rank).startsWith(expected), lines.get(rank));
    }
  }

  @Test
  void shellLoopKillsOtherRanksWhenOneFails() throws IOException, InterruptedException {
    List<String> program =
        List.of("bash", "-c", "if [[ $RANK == 1 ]]; then exit 7; fi; exec sleep 250");
    Started loop =
        Started.with(Map.of(), command(List.of(HERE.resolve("plain.sh").toString(), "3"), program));
    assertEquals(7, loop.status(), loop::toString);
  }

  /** Runs the commands of docs/guides/launching.md. */
  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      textBlock =
          """
          openMpi | mpirun --enable-recovery -n 4 PROGRAM
          mpich   | mpirun -n 4 sh -c '"$@"; exit $?' sh PROGRAM
          plain   | plain.sh --keep-survivors 4 PROGRAM
          """)
  void survivorsOutliveAKilledRank(String launcher, String command)
      throws IOException, InterruptedException {
    String guide = Files.readString(HERE.resolve("../../docs/guides/launching.md"));
    assertTrue(guide.contains("`" + command + "`"), command);
    Path dying = folder.resolve("dying");
    Files.writeString(
        dying,
        """
        rank=${OMPI_COMM_WORLD_RANK-${PMI_RANK-$RANK}}
        if [[ $rank == 1 ]]; then kill -9 $$; fi
        sleep 3 # longer than a launcher takes to end the others
        echo rank $rank survived
        """);
    String adapted =
        command
            .replaceFirst("^\\S+", program(launcher))
            .replace(" 4 ", " 3 ")
            .replace("PROGRAM", "bash " + dying);
    Started started = Started.with(OPEN_MPI, List.of("bash", "-c", adapted));
    started.status();
    assertEquals(
        List.of("rank 0 survived", "rank 2 survived"),
        started.output().filter(line -> line.startsWith("rank ")).sorted().toList(),
        started::toString);
  }

  @Test
  void batchJobTasksConnectToTheFirstNode() throws IOException, InterruptedException {
    Path bin = Files.createDirectory(folder.resolve("bin"));
    Files.copy(
        HERE.resolve("src/test/resources/srun"),
        bin.resolve("srun"),
        StandardCopyOption.COPY_ATTRIBUTES);
    Map<String, String> environment = Map.of("PATH", bin + ":" + System.getenv("PATH"));
    List<String> launcher = List.of("bash", HERE.resolve("slurm.sbatch").toString());
    List<String> lines = hello(environment, launcher);
    assertEquals(ranks(4, "Slurm, id from rank 0 at 127.0.0.1"), withoutPort(lines));
  }

  @Test
  void indexedJobPodsConnectToTheFirst() throws Exception {
    Map<String, String> manifest = new HashMap<>(IndexedJob.read().environment(secretFile()));
    manifest.put("MASTER_ADDR", "127.0.0.1");
    manifest.put("MASTER_PORT", "" + freePort());
    List<Started> pods = new ArrayList<>();
    int size = Integer.parseInt(manifest.get("WORLD_SIZE"));
    for (int index = 0; index < size; index++) {
      manifest.put("JOB_COMPLETION_INDEX", "" + index);
      pods.add(Started.with(manifest, Started.java(Hello.class)));
    }
    assertEquals(ranks(size, "Kubernetes, id from rank 0 at 127.0.0.1"), withoutPort(lines(pods)));
  }

  /** Returns the two-host command of README.md with the given prefix. */
  private static String recipe(String prefix) throws IOException {
    String page = Files.readString(HERE.resolve("README.md"));
    List<String> lines =
        page.substring(page.indexOf("## Two hosts"))
            .lines()
            .filter(line -> line.startsWith("    $ "))
            .map(line -> line.substring("    $ ".length()))
            .toList();
    List<String> found = lines.stream().filter(line -> line.startsWith(prefix)).toList();
    assertEquals(1, found.size(), lines.toString());
    String exported =
        "export NCCL4J_SECRET_FILE=$HOME/.nccl4j-secret MASTER_ADDR=node1 MASTER_PORT=29500";
    assertEquals(2, lines.stream().filter(exported::equals).count());
    return found.getFirst();
  }

  /** Returns this command, with hosts and sizes adapted to one machine. */
  private static String onOneHost(String prefix, String hosts, String localHosts)
      throws IOException {
    String sizes = "nccl4j/scripts/all-reduce-perf -b 8 -e 8G -f 2";
    String command = recipe(prefix);
    assertTrue(command.contains(hosts) && command.endsWith(sizes), command);
    String perf = "all_reduce --backend reference -b 8 -e 64 -f 8 -n 2 -w 0";
    String java =
        String.join(
            " ",
            Started.java(Perf.class, perf.split(" ", -1)).stream()
                .map(argument -> "'" + argument + "'")
                .toList());
    return command.replace(hosts, localHosts).replace(sizes, java);
  }

  private static void assertMeasured(List<String> lines) {
    assertEquals(4, lines.stream().filter(line -> line.matches("# +Rank +\\d+ .*")).count());
    assertTrue(lines.contains("# Out of bounds values : 0 OK"), lines.toString());
  }

  @ParameterizedTest
  @CsvSource({
    "mpirun , '--host node1:8,node2:8', --host localhost:4",
    "mpirun.mpich , '-hosts node1,node2 -ppn 8 -n 16', -hosts localhost -ppn 4 -n 4"
  })
  void recipeForTwoHostsRunsOnOne(String launcher, String hosts, String localHosts)
      throws IOException, InterruptedException {
    String program = launcher.equals("mpirun") ? Programs.openMpi() : Programs.mpich();
    String command = onOneHost(launcher + " ", hosts, localHosts).replaceFirst(launcher, program);
    Map<String, String> environment = new HashMap<>(OPEN_MPI);
    environment.put("NCCL4J_SECRET_FILE", secretFile());
    environment.put("MASTER_ADDR", "127.0.0.1");
    environment.put("MASTER_PORT", "" + freePort());
    assertMeasured(Started.with(environment, List.of("bash", "-c", command)).lines());
  }

  @Test
  void recipeForTwoAgentsRunsOnOneHost() throws IOException, InterruptedException {
    String endpoint = "localhost:" + freePort();
    String command =
        onOneHost("torchrun ", "--nproc-per-node 8", "--nproc-per-node 2")
            .replace("node1:29500", endpoint)
            .replaceFirst("torchrun", Programs.torchrun());
    List<Started> agents = new ArrayList<>();
    for (int agent = 0; agent < 2; agent++) {
      agents.add(Started.with(Map.of(), List.of("bash", "-c", command)));
    }
    assertMeasured(lines(agents));
  }

  /** Runs the manifest's command with the reference backend and smaller sizes. */
  @Test
  void podsMeasureTheBandwidthOfAllTheirRanks() throws Exception {
    IndexedJob job = IndexedJob.read();
    assertEquals(List.of("/opt/nccl4j/scripts/all-reduce-perf"), job.container("command"));
    List<String> arguments = new ArrayList<>(List.of("all_reduce", "--backend", "reference"));
    ((List<?>) job.container("args")).forEach(argument -> arguments.add((String) argument));
    arguments.set(arguments.indexOf("8G"), "16");
    arguments.addAll(List.of("-n", "1", "-w", "0"));
    Map<String, String> manifest = new HashMap<>(job.environment(secretFile()));
    manifest.put("MASTER_ADDR", "127.0.0.1");
    manifest.put("MASTER_PORT", "" + freePort());
    List<Started> pods = new ArrayList<>();
    for (int index = 0; index < 2; index++) {
      manifest.put("JOB_COMPLETION_INDEX", "" + index);
      pods.add(Started.with(manifest, Started.java(Perf.class, arguments.toArray(String[]::new))));
    }
    List<String> lines = lines(pods);
    assertEquals(16, lines.stream().filter(line -> line.matches("# +Rank +\\d+ .*")).count());
    assertEquals(2, lines.stream().filter(line -> line.matches(" +\\d+ +\\d+ +float .*")).count());
    assertTrue(lines.contains("# Out of bounds values : 0 OK"), lines.toString());
  }

  private static Stream<List<String>> launchers() {
    return Stream.of(
        List.of("openMpi", "-n", "2"),
        List.of("mpich", "-n", "2"),
        List.of("torchrun", "--no-python", "--nproc-per-node=2"),
        List.of("plain", "2"));
  }

  private static String program(String launcher) {
    return switch (launcher) {
      case "openMpi" -> Programs.openMpi();
      case "mpich" -> Programs.mpich();
      case "torchrun" -> Programs.torchrun();
      default -> HERE.resolve("plain.sh").toString();
    };
  }

  @ParameterizedTest
  @MethodSource("launchers")
  void bandwidthCommandRunsUnderEachLauncher(List<String> launcher)
      throws IOException, InterruptedException {
    List<String> perf =
        Started.java(
            Perf.class, "all_reduce --backend reference -b 8 -e 8K -f 32 -n 2 -w 0".split(" ", -1));
    List<String> named =
        command(List.of(program(launcher.getFirst())), launcher.subList(1, launcher.size()));
    List<String> lines = Started.with(OPEN_MPI, command(named, perf)).lines();
    assertEquals(1, lines.stream().filter(line -> line.matches("# +Rank +1 .*")).count());
    assertEquals(3, lines.stream().filter(line -> line.matches(" +\\d+ +\\d+ +float .*")).count());
    assertTrue(lines.contains("# Out of bounds values : 0 OK"), lines.toString());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          OMPI_COMM_WORLD_RANK=1 | OMPI_COMM_WORLD_RANK is 1, but OMPI_COMM_WORLD_SIZE is not set
          RANK=0 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2 | RANK is 0 and WORLD_SIZE is 2, but PMI_RANK is 1 and PMI_SIZE is 2: two launchers disagree
          RANK=0 WORLD_SIZE=2 | nothing from plain variables says where the 2 ranks exchange the id
          """)
  void invalidVariablesAreReported(String variables, String message)
      throws IOException, InterruptedException {
    Map<String, String> environment = new HashMap<>();
    for (String variable : variables.split(" ", -1)) {
      int equals = variable.indexOf('=');
      environment.put(variable.substring(0, equals), variable.substring(equals + 1));
    }
    Started hello = Started.with(environment, Started.java(Hello.class));
    assertEquals(1, hello.status(), hello::toString);
    assertTrue(hello.errors().contains(message), hello::toString);
  }
}
