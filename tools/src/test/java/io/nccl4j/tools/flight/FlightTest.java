package io.nccl4j.tools.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.FlightRecorder;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.fixtures.programs.StandIn;
import io.nccl4j.fixtures.programs.Torch;
import io.nccl4j.internal.flight.OperationLog;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.flight.FaultyRank.Fault;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What {@code nccl4j flight} and PyTorch's {@code torchfrtrace} say about seeded faults. */
class FlightTest {
  @TempDir Path folder;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int run(Object... args) {
    out.reset();
    return Flight.run(
        new PrintStream(out, true, StandardCharsets.UTF_8),
        new PrintStream(err, true, StandardCharsets.UTF_8),
        Stream.of(args).map(Object::toString).toArray(String[]::new));
  }

  private String output() {
    return out.toString(StandardCharsets.UTF_8);
  }

  /** Returns the communicator that was used last. */
  private Map<?, ?> last(Path dumps) throws IOException {
    assertEquals(Commands.OK, run(dumps, "--json"), err::toString);
    return (Map<?, ?>) ((List<?>) JsonTree.parse(output())).getFirst();
  }

  /** Returns kind, ranks and number of each finding of the communicator that was used last. */
  private List<String> findings(Path dumps) throws IOException {
    return ((List<?>) last(dumps).get("findings"))
        .stream()
            .map(Map.class::cast)
            .map(each -> each.get("kind") + " " + each.get("ranks") + " " + each.get("number"))
            .toList();
  }

  /** Returns the output of the unmodified torchfrtrace, with the prefix that it infers. */
  private static String torch(Path dumps) throws Exception {
    return FinishedProgram.run(
            Map.of(), List.of(Torch.program("torchfrtrace").toString(), dumps.toString()))
        .output();
  }

  private Path dumpsOfThreads(Fault fault) throws Exception {
    Path all = folder.resolve("all");
    try (Backend backend = Backend.reference(FaultyRank.RANKS)) {
      List<AutoCloseable> opened = FaultyRank.inThreads(backend, fault);
      FlightRecorder.dump(all);
      for (AutoCloseable each : opened) {
        each.close();
      }
    }
    // This process still has the records of aborted communicators of other tests.
    String communicator = (String) last(all).get("communicator");
    Path dumps = Files.createDirectory(folder.resolve("dumps"));
    try (Stream<Path> files = Files.list(all)) {
      for (Path file :
          files.filter(each -> each.getFileName().toString().contains(communicator)).toList()) {
        Files.copy(file, dumps.resolve(file.getFileName()));
      }
    }
    return dumps;
  }

  private static List<String> names(Path dumps) throws IOException {
    try (Stream<Path> files = Files.list(dumps)) {
      return files.map(each -> each.getFileName().toString()).sorted().toList();
    }
  }

  private static void assertTorchNames(String expected, String found) {
    for (String part : expected.split(" & ", -1)) {
      assertTrue(found.contains(part), () -> part + " is not in " + found);
    }
  }

  @ParameterizedTest(name = "{0}")
  @CsvSource({
    "ABSENT,behind [1] 5",
    "LATE,behind [1] 6",
    "OTHER_OPERATION,other operation [1] 5",
    "OTHER_COUNT,other count [1] 5",
    "OTHER_TYPE,other type [1] 5",
    "OTHER_ORDER,other order [1] 5"
  })
  void faultIsNamed(Fault fault, String finding) throws Exception {
    assertEquals(List.of(finding), findings(dumpsOfThreads(fault)));
  }

  @Tag("slow")
  @ParameterizedTest(name = "{0}")
  @CsvSource(
      delimiter = '|',
      value = {
        "ABSENT | Not all ranks joining collective, sequence number: 5 & missing ranks: {1}",
        "LATE | Not all ranks joining collective, sequence number: 6 & missing ranks: {1}",
        "OTHER_OPERATION | sequence number: 5 has errors & COLLECTIVE_TYPE_MISMATCH",
        "OTHER_COUNT | sequence number: 5 has errors & SIZE_OR_SYNTAX_MISMATCH",
        "OTHER_TYPE | sequence number: 5 has errors & COLLECTIVE_DTYPE_MISMATCH",
        "OTHER_ORDER | sequence number: 5 has errors & COLLECTIVE_TYPE_MISMATCH"
      })
  void torchfrtraceNamesTheSameFault(Fault fault, String texts) throws Exception {
    assertTorchNames(texts, torch(dumpsOfThreads(fault)));
  }

  @Test
  void rejectedCallIsNotRecorded() throws IOException {
    CommunicatorConfig config = CommunicatorConfig.defaults().withName("rejected");
    try (Backend backend = Backend.reference(1);
        CommunicatorList comms = backend.newCommunicators(new int[] {0}, config);
        io.nccl4j.Stream stream = comms.get(0).newStream();
        Buffer data = comms.get(0).newBuffer(DataType.INT32, 1)) {
      Communicator comm = comms.get(0);
      comm.allReduce(data, data, ReduceOp.SUM, stream);
      // There is no receive.
      assertThrows(NcclException.class, () -> Group.run(() -> comm.send(data, 0, stream)));
      comm.allReduce(data, data, ReduceOp.SUM, stream);
      stream.synchronize();
      FlightRecorder.dump(folder);
    }
    assertEquals(Commands.OK, run(folder));
    assertTrue(output().contains(" (rejected), 1 rank, reference\n"), output());
    assertEquals(List.of(), findings(folder));
    assertEquals(2L, ((Map<?, ?>) ((List<?>) last(folder).get("ranks")).getFirst()).get("called"));
  }

  @Test
  void rightProgramHasNoFinding() throws Exception {
    Path dumps = dumpsOfThreads(Fault.NONE);
    assertEquals(List.of(), findings(dumps));
    assertEquals(Commands.OK, run(dumps));
    assertTrue(output().contains("\nno difference: "), output());
  }

  @Test
  void pageHasLineForEachRank() throws Exception {
    Path page = folder.resolve("page.html");
    assertEquals(Commands.OK, run(dumpsOfThreads(Fault.OTHER_COUNT), "--html", page));
    String html = Files.readString(page);
    assertTrue(html.contains("</dt><dd>other count: rank 1</dd>"), html);
    for (int rank = 0; rank < FaultyRank.RANKS; rank++) {
      // One in the table of processes, one in that of collectives.
      assertEquals(3, html.split("<th scope=\"row\">" + rank + "</th>", -1).length, html);
    }
    assertTrue(html.contains("<td class=\"wrong\">all_reduce 500</td>"), html);
  }

  @Tag("slow")
  @ParameterizedTest(name = "{0}")
  @CsvSource(
      delimiter = '|',
      value = {
        "ABSENT | behind [1] 5 | missing ranks: {1}",
        "KILLED | behind [1] 5 | missing ranks: {1}"
      })
  void rankWithoutDumpIsReadFromItsFile(Fault fault, String finding, String torch)
      throws Exception {
    Path failed = folder.resolve("failed");
    List<Process> ranks = new ArrayList<>();
    for (int rank = 0; rank < FaultyRank.RANKS; rank++) {
      List<String> command =
          FinishedProgram.java(
              "-XX:TieredStopAtLevel=1",
              FaultyRank.class.getName(),
              folder.toString(),
              fault.toString(),
              String.valueOf(rank));
      ranks.add(
          FinishedProgram.builder(Map.of("NCCL4J_FLIGHT_DIR", failed.toString()), command)
              .redirectErrorStream(true)
              .redirectOutput(folder.resolve("output-" + rank).toFile())
              .start());
    }
    try {
      for (int rank = 0; rank < FaultyRank.RANKS; rank++) {
        if (rank != FaultyRank.CULPRIT || fault == Fault.KILLED) {
          assertTrue(ranks.get(rank).waitFor(60, TimeUnit.SECONDS), "rank " + rank);
        }
      }
      // What the survivors wrote when they failed.
      assertEquals(List.of(finding), findings(failed));
      Path dumps = folder.resolve("dumps");
      assertEquals(List.of(finding), findings(dumps));
      Path all = folder.resolve("all");
      assertEquals(Commands.OK, run(dumps, "--dumps", all));
      // Only of the rank that has none.
      assertEquals(
          List.of(FaultyRank.CULPRIT + ".json", String.valueOf(FaultyRank.CULPRIT)),
          names(all).stream().map(each -> each.replaceFirst(".*_rank_", "")).toList());
      for (String dump : names(dumps)) {
        Files.copy(dumps.resolve(dump), all.resolve(dump));
      }
      assertEquals(fault == Fault.KILLED, output().contains(", has ended)"), output());
      assertTorchNames(torch, torch(all));
    } finally {
      ranks.forEach(Process::destroyForcibly);
    }
  }

  @Tag("slow")
  @Test
  void torchfrtraceFindsNoFaultInRightProgram() throws Exception {
    String found = torch(dumpsOfThreads(Fault.NONE));
    assertFalse(found.contains("sequence number") || found.contains("Error"), found);
  }

  @Tag("slow")
  @Test
  void torchfrtraceAcceptsMessagesOfRankToItself() throws Exception {
    try (Backend backend = Backend.reference(1);
        CommunicatorList comms = backend.newCommunicators(new int[] {0});
        io.nccl4j.Stream stream = comms.get(0).newStream();
        Buffer sent = comms.get(0).newBuffer(DataType.INT32, 1);
        Buffer received = comms.get(0).newBuffer(DataType.INT32, 1)) {
      Communicator comm = comms.get(0);
      Group.run(
          () -> {
            comm.send(sent, 0, stream);
            comm.recv(received, 0, stream);
          });
      stream.synchronize();
      FlightRecorder.dump(folder);
    }
    for (String dump : names(folder)) {
      if (!Files.readString(folder.resolve(dump), StandardCharsets.ISO_8859_1).contains("recv")) {
        Files.delete(folder.resolve(dump));
      }
    }
    assertEquals(2, names(folder).size());
    String found = torch(folder);
    assertFalse(found.contains("Error") || found.contains("coalesced"), found);
  }

  @Tag("slow")
  @ParameterizedTest(name = "{0}")
  @CsvSource({"ABSENT,behind [1] 5", "LATE,behind [1] 6", "OTHER_COUNT,other count [1] 5"})
  void faultIsNamedOnStandIn(Fault fault, String finding) throws Exception {
    FinishedProgram ended =
        FinishedProgram.run(
            StandIn.build(),
            FinishedProgram.java(FaultyRank.class.getName(), folder.toString(), fault.toString()));
    assertEquals(0, ended.status(), ended.output());
    assertEquals(List.of(finding), findings(folder.resolve("dumps")), ended.output());
  }

  @Test
  void folderWithoutDumpsIsRefused() {
    assertEquals(Commands.FAILED, run(folder));
    assertTrue(
        err.toString(StandardCharsets.UTF_8).contains("no dump of nccl4j's flight recorder"));
    assertEquals(Commands.BAD_ARGUMENTS, run(folder.resolve("absent")));
  }

  /** Returns a dump as JSON, in which a text is replaced. */
  private static String dump(int rank, String found, String replacement) {
    String dump =
        """
        {"nccl4j": {"communicator": "c0ffee", "name": "train", "backend": "nccl", "rank": RANK,
          "size": 2, "device": 0, "host": "a", "process": "12", "written_ns": 9000000000,
          "overwritten": 0},
         "entries": [{"is_p2p": false, "profiling_name": "nccl:all_reduce", "collective_seq_id": 1,
          "record_id": 0, "count": 10, "input_dtypes": ["float32"], "reduction": "sum", "peer": -1,
          "time_created_ns": 1000000000, "state": "scheduled"}]}
        """
            .replace("RANK", String.valueOf(rank));
    assertTrue(dump.contains(found), found);
    return dump.replace(found, replacement);
  }

  @ParameterizedTest(name = "{0} -> {1}")
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      nullValues = "nothing",
      value = {
        "\"rank\": 1 | \"rank\": 2 | 'rank'",
        "\"rank\": 1 | \"rank\": -1 | 'rank'",
        "\"rank\": 1 | \"rank\": \"1\" | 'rank'",
        "\"size\": 2 | \"size\": 2147483647 | 'size'",
        "\"size\": 2 | \"size\": 1e300 | 'size'",
        "\"host\": \"a\", | `` | 'host'",
        "\"name\": \"train\" | \"name\": null | 'name'",
        "\"name\": \"train\" | \"name\": [] | 'name'",
        "9000000000 | 99999999999999999999 | 'written_ns'",
        "\"float32\" | `` | 'input_dtypes'",
        "\"float32\" | 32 | 'input_dtypes'",
        "\"nccl:all_reduce\" | {} | 'profiling_name'",
        "\"collective_seq_id\": 1 | \"collective_seq_id\": -9 | 'collective_seq_id'",
        "\"is_p2p\": false | \"is_p2p\": 0 | 'is_p2p'",
        "\"peer\": -1 | \"peer\": 2 | 'peer'",
        "\"entries\": [ | \"entries\": [7, | it is not a dump",
        "\"entries\" | \"others\" | 'entries'",
        "\"nccl4j\" | \"others\" | it is not a dump",
        "}]} | }] | end-of-input"
      })
  void damagedDumpIsNamedAndOthersAreRead(String found, String replacement, String reason)
      throws IOException {
    Path damaged = folder.resolve("x_rank_1.json");
    Files.writeString(folder.resolve("x_rank_0.json"), dump(0, "train", "train"));
    Files.writeString(damaged, dump(1, found, replacement == null ? "" : replacement));
    assertUnread(damaged, reason);
  }

  private void assertUnread(Path file, String reason) {
    assertEquals(Commands.FAILED, run(folder));
    assertTrue(output().contains("no log: there is no log of rank 1"), output());
    String message = err.toString(StandardCharsets.UTF_8);
    assertTrue(message.startsWith("flight: " + file + " is not read: "), message);
    assertTrue(message.contains(reason), message);
    assertEquals(1, message.lines().count(), message);
  }

  @Test
  void unreadableFileOfOtherProcessConcernsOnlyThoseWhoReadAll() throws IOException {
    // As of another version.
    OperationLog other = OperationLog.create(Map.of("rank", "0"), 1, false);
    try {
      Files.writeString(folder.resolve("x_rank_0.json"), dump(0, "train", "train"));
      assertEquals(Commands.OK, run(folder), err::toString);
      assertEquals(Commands.FAILED, run());
      assertTrue(err.toString(StandardCharsets.UTF_8).contains("'size' is missing or invalid"));
    } finally {
      other.deleteFile();
    }
  }

  @Test
  void onlyRegularFilesAreRead() throws Exception {
    Path elsewhere = Files.createDirectory(folder.resolve("elsewhere")).resolve("1");
    Files.writeString(elsewhere, dump(1, "train", "train"));
    Files.writeString(folder.resolve("x_rank_0.json"), dump(0, "train", "train"));
    Path file = folder.resolve("x_rank_1.json");
    Files.createSymbolicLink(file, elsewhere);
    assertUnread(file, "it is not a regular file");
    Files.delete(file);
    err.reset();
    Files.createDirectory(file);
    assertUnread(file, "it is not a regular file");
    Files.delete(file);
    err.reset();
    // Opening a pipe waits until it has a writer.
    FinishedProgram.run(Map.of(), List.of("mkfifo", file.toString()));
    assertUnread(file, "it is not a regular file");
  }

  @Test
  void hugeFileIsNotRead() throws Exception {
    Files.writeString(folder.resolve("x_rank_0.json"), dump(0, "train", "train"));
    Path file = folder.resolve("x_rank_1.json");
    try (RandomAccessFile sparse = new RandomAccessFile(file.toFile(), "rw")) {
      sparse.setLength(1L << 40);
    }
    assertUnread(file, "it is larger than 256 MiB");
  }

  @Test
  void namesCannotForgeOutput() throws IOException {
    String name = "<script>alert(1)</script>\\u001b[2J\\nno difference\\u202e";
    Files.writeString(folder.resolve("x_rank_0.json"), dump(0, "train", name));
    Path page = folder.resolve("page.html");
    assertEquals(Commands.OK, run(folder, "--html", page), err::toString);
    assertTrue(output().contains("<script>alert(1)</script>?[2J?no difference?"), output());
    assertFalse(Files.readString(page).contains("<script>alert"));
  }

  @Test
  void latestDumpOfRankCounts() throws IOException {
    Path later = Files.createDirectory(folder.resolve("later"));
    for (int rank = 0; rank < 2; rank++) {
      Files.writeString(folder.resolve("x_rank_" + rank + ".json"), dump(rank, "train", "train"));
    }
    String completed = dump(1, "scheduled", "completed").replace("9000000000", "9000000001");
    Files.writeString(later.resolve("x_rank_1.json"), completed);
    for (List<Path> folders : List.of(List.of(folder, later), List.of(later, folder))) {
      assertEquals(Commands.OK, run(folders.get(0), folders.get(1)), err::toString);
      assertTrue(output().contains("; rank 0 had not completed it for 8.0 s\n"), output());
    }
  }
}
