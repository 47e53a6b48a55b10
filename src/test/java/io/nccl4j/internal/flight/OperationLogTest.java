package io.nccl4j.internal.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.flight.OperationLog.Entry;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The ring of records, in this process and as another one reads it. */
class OperationLogTest {
  private static final int CAPACITY = 4;

  @TempDir Path folder;

  private final String communicator = UUID.randomUUID().toString();

  private OperationLog create() {
    Map<String, String> about = new LinkedHashMap<>();
    about.put("communicator", communicator);
    about.put("name", "a=b");
    about.put("rank", "2");
    about.put("size", "3");
    about.put("operations", "all_gather,send");
    about.put("types", "int8,float32");
    about.put("operators", "sum,none");
    return OperationLog.create(about, CAPACITY, false);
  }

  private static long gather(OperationLog log, long number) {
    return log.add(OperationLog.kind(0, 1, 1), -1, number, 0, 100, 7);
  }

  private Path fileOf() throws IOException {
    for (Path file : LogFolder.logsOfThisHost()) {
      if (OperationLog.open(file).about().get("communicator").equals(communicator)) {
        return file;
      }
    }
    throw new AssertionError("no file of " + communicator);
  }

  @Test
  void ringKeepsLastRecords() {
    OperationLog log = create();
    for (int number = 1; number <= 6; number++) {
      assertEquals(number, gather(log, number));
    }
    assertEquals(List.of(3L, 4L, 5L, 6L), log.entries().stream().map(Entry::collectives).toList());
    log.deleteFile();
  }

  @Test
  void completionOfOverwrittenRecordChangesNothing() {
    OperationLog log = create();
    for (int number = 1; number <= 5; number++) {
      gather(log, number);
    }
    log.complete(1, System.nanoTime());
    log.complete(2, System.nanoTime());
    assertEquals(
        List.of(true, false, false, false),
        log.entries().stream().map(entry -> entry.completed() != 0).toList());
    log.deleteFile();
  }

  @Test
  void removedRecordIsNotRead() {
    OperationLog log = create();
    gather(log, 1);
    log.remove(gather(log, 2));
    gather(log, 2);
    assertEquals(List.of(1L, 3L), log.entries().stream().map(Entry::record).toList());
    log.deleteFile();
  }

  @Test
  void otherProcessReadsFile() throws IOException {
    OperationLog log = create();
    Instant before = Instant.now();
    log.complete(gather(log, 1), System.nanoTime());
    Path file = fileOf();
    OperationLog read = OperationLog.open(file);
    assertEquals("a=b", read.about().get("name"));
    Entry entry = read.entries().getFirst();
    assertEquals(log.entries(), read.entries());
    long late = entry.created() - (before.getEpochSecond() * 1_000_000_000 + before.getNano());
    assertTrue(late > -1_000_000 && late < 10_000_000_000L, "created " + late + " ns later");
    assertTrue(entry.completed() >= entry.created());
    assertEquals(
        "rwx------",
        PosixFilePermissions.toString(Files.getPosixFilePermissions(file.getParent())));
    log.deleteFile();
    assertFalse(Files.exists(file));
  }

  @Test
  void dumpHasSizesOfAllRanksAndPairOfMessage() {
    OperationLog log = create();
    gather(log, 1);
    log.add(OperationLog.kind(1, 0, 1), 0, 1, 9, 5, 7);
    Map<String, Object> dump = Dump.of(log);
    List<?> entries = (List<?>) dump.get("entries");
    Map<?, ?> gather = (Map<?, ?>) entries.get(0);
    assertEquals("nccl:all_gather", gather.get("profiling_name"));
    assertEquals(List.of(List.of(100L)), gather.get("input_sizes"));
    assertEquals(List.of(List.of(300L)), gather.get("output_sizes"));
    Map<?, ?> send = (Map<?, ?>) entries.get(1);
    // Rank 2 is the second of the pair.
    assertEquals("nccl:send 1->0", send.get("profiling_name"));
    assertEquals(List.of(communicator + "/2->0", "a=b"), send.get("process_group"));
    assertEquals(9L, send.get("collective_seq_id"));
    Map<?, ?> groups = (Map<?, ?>) dump.get("pg_config");
    assertEquals("[0, 2]", ((Map<?, ?>) groups.get(communicator + "/2->0")).get("ranks"));
    assertEquals("[0, 1, 2]", ((Map<?, ?>) groups.get(communicator)).get("ranks"));
    log.deleteFile();
  }

  @Test
  void dumpTellsWhatWasOverwritten() {
    OperationLog log = create();
    for (int number = 1; number <= 6; number++) {
      gather(log, number);
    }
    assertEquals(2L, ((Map<?, ?>) Dump.of(log).get("nccl4j")).get("overwritten"));
    log.deleteFile();
  }

  @Test
  void recordIdsCountCollectivesBeforeTheCall() {
    OperationLog log = create();
    log.add(OperationLog.kind(1, 0, 1), 0, 0, 1, 5, 7);
    gather(log, 1);
    log.add(OperationLog.kind(1, 0, 1), 0, 1, 2, 5, 7);
    gather(log, 2);
    // A rank that begins with a send and one that begins with a collective have the same first.
    assertEquals(
        List.of(0L, 0L, 1L, 1L),
        ((List<?>) Dump.of(log).get("entries"))
            .stream().map(entry -> ((Map<?, ?>) entry).get("record_id")).toList());
    log.deleteFile();
  }

  @Test
  void messagesToItselfAreAloneInTheirGroups() {
    OperationLog log = create();
    log.add(OperationLog.kind(1, 0, 1), 2, 0, 1, 5, 7);
    // The name of the operation is unknown, so it is not a send.
    log.add(OperationLog.kind(9, 0, 1), 2, 0, 1, 5, 7);
    assertEquals(
        List.of(communicator + "/2->2", communicator + "/2<-2"),
        ((List<?>) Dump.of(log).get("entries"))
            .stream()
                .map(entry -> ((List<?>) ((Map<?, ?>) entry).get("process_group")).getFirst())
                .toList());
    log.deleteFile();
  }

  @Test
  void failedWriteLeavesNothing() throws IOException {
    OperationLog log = create();
    Path taken = folder.resolve(communicator + "_rank_2.json");
    Files.createDirectories(taken.resolve("content"));
    assertThrows(IOException.class, () -> Dump.write(Dump.of(log), folder));
    try (Stream<Path> files = Files.list(folder)) {
      assertEquals(List.of(taken), files.toList());
    }
    log.deleteFile();
  }

  @Test
  void framesOfCallersAreKeptIfAsked() {
    OperationLog log = OperationLog.create(Map.of("communicator", communicator), CAPACITY, true);
    gather(log, 1);
    List<StackTraceElement> frames = log.entries().getFirst().frames();
    assertFalse(frames.isEmpty());
    // Those of the library, and of this test, are left out.
    assertFalse(frames.getFirst().getClassName().startsWith("io.nccl4j."), frames::toString);
    log.deleteFile();
  }

  @Test
  void otherFileIsRefused() throws IOException {
    Path file = Files.write(folder.resolve("log-1"), new byte[8192]);
    IOException refused = assertThrows(IOException.class, () -> OperationLog.open(file));
    assertTrue(refused.getMessage().startsWith(file + " is not a log"), refused.getMessage());
  }

  @ParameterizedTest(name = "{0}: {1}")
  @CsvSource({
    "0, 1", // magic
    "8, -1",
    "8, 5", // records
    "8, 9223372036854775807",
    "24, -1", // length of the text
    "24, 4065",
    "24, 9223372036854775807"
  })
  void damagedHeaderIsRefused(int position, long value) throws IOException {
    OperationLog log = create();
    byte[] content = Files.readAllBytes(fileOf());
    log.deleteFile();
    ByteBuffer.wrap(content).order(ByteOrder.nativeOrder()).putLong(position, value);
    Path file = Files.write(folder.resolve("log-1"), content);
    assertThrows(IOException.class, () -> OperationLog.open(file));
  }

  @Test
  void truncatedFileIsRefused() throws IOException {
    OperationLog log = create();
    byte[] content = Files.readAllBytes(fileOf());
    log.deleteFile();
    for (int length : new int[] {0, 8, 4095, 4096, content.length - 72, content.length - 1}) {
      Path file = Files.write(folder.resolve("log-1"), Arrays.copyOf(content, length));
      assertThrows(IOException.class, () -> OperationLog.open(file), "length " + length);
    }
  }

  @Test
  void jsonEscapesText() {
    assertEquals(
        "[\"a\\\"\\\\\\u000a\",1,null,true]", Json.of(Arrays.asList("a\"\\\n", 1L, null, true)));
  }
}
