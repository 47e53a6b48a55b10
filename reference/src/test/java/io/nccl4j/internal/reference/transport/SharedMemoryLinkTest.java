package io.nccl4j.internal.reference.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclSystemException;
import io.nccl4j.fixtures.Seed;
import java.io.BufferedReader;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

class SharedMemoryLinkTest {
  private static final int SLOTS = 4;
  private static final int SLOT_BYTES = 1000;

  /** The offset of the first slot in the file. */
  private static final long FIRST_SLOT = 256;

  private final Arena arena = Arena.ofShared();
  private final MemorySegment data = arena.allocate(SLOT_BYTES);

  @TempDir private Path folder;

  @AfterEach
  void unmap() {
    if (arena.scope().isAlive()) {
      arena.close();
    }
  }

  private SharedMemoryLink create() {
    return SharedMemoryLink.create(folder, arena, SLOTS, SLOT_BYTES, 3, 5);
  }

  private SharedMemoryLink open(SharedMemoryLink created) {
    return SharedMemoryLink.open(created.path(), arena, 3, 5, 5);
  }

  private List<Path> files() throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.toList();
    }
  }

  @Test
  void sliceArrivesUnchangedThoughSenderReusesMemory() {
    SharedMemoryLink out = create();
    SharedMemoryLink in = open(out);
    assertFalse(in.ready());
    data.fill((byte) 7);
    out.send(data, 100, 900, 42);
    assertTrue(out.drained(), "the sender's memory may be reused");
    data.fill((byte) 8);
    assertTrue(in.ready());
    assertEquals(3, in.source());
    assertEquals(900, in.bytes());
    assertEquals(42, in.signature());
    for (long i = 0; i < 900; i++) {
      assertEquals(7, in.memory().get(ValueLayout.JAVA_BYTE, in.offset() + i));
    }
    in.release();
    assertFalse(in.ready());
  }

  @Test
  void slotsLimitTheSlicesInFlight() {
    SharedMemoryLink out = create();
    SharedMemoryLink in = open(out);
    for (int sent = 0; sent < SLOTS; sent++) {
      assertTrue(out.hasRoom());
      out.send(data, 0, sent, sent);
    }
    assertFalse(out.hasRoom());
    for (int more = 0; more < 3 * SLOTS; more++) {
      assertTrue(in.ready());
      assertEquals(more, in.signature());
      in.release();
      assertTrue(out.hasRoom());
      out.send(data, 0, 1, SLOTS + more);
      assertFalse(out.hasRoom());
    }
    assertEquals(4 * SLOTS, out.sent());
  }

  @Test
  void fileIsPrivateAndUnlinkedOnceOpened() throws IOException {
    SharedMemoryLink out = create();
    assertEquals(
        "rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(out.path())));
    assertEquals(List.of(out.path()), files());
    open(out);
    assertEquals(List.of(), files());
    SharedMemoryLink unopened = create();
    unopened.discard();
    unopened.discard();
    assertEquals(List.of(), files());
  }

  @Test
  void allSlicesOfTwoThreadsArriveInOrder() throws InterruptedException {
    SplittableRandom random = Seed.random("links");
    int[] sizes = random.ints(20_000, 0, SLOT_BYTES + 1).toArray();
    SharedMemoryLink out = create();
    SharedMemoryLink in = open(out);
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Thread sender =
        Thread.ofPlatform()
            .uncaughtExceptionHandler((thread, e) -> failure.set(e))
            .start(
                () -> {
                  for (int i = 0; i < sizes.length; i++) {
                    data.fill((byte) i);
                    LinkPeer.await(out::hasRoom);
                    out.send(data, 0, sizes[i], i);
                  }
                });
    for (int i = 0; i < sizes.length; i++) {
      LinkPeer.await(in::ready);
      assertEquals(i, in.signature(), Seed.hint());
      assertEquals(sizes[i], in.bytes(), Seed.hint());
      if (sizes[i] > 0) {
        long last = in.offset() + sizes[i] - 1;
        assertEquals((byte) i, in.memory().get(ValueLayout.JAVA_BYTE, in.offset()));
        assertEquals((byte) i, in.memory().get(ValueLayout.JAVA_BYTE, last));
      }
      in.release();
    }
    sender.join();
    assertEquals(null, failure.get());
  }

  @Test
  void anotherProcessAnswersEverySlice() throws Exception {
    SharedMemoryLink out = SharedMemoryLink.create(folder, arena, 2, SLOT_BYTES, 0, 1);
    SharedMemoryLink in = SharedMemoryLink.create(folder, arena, 2, SLOT_BYTES, 1, 0);
    String[] paths = {out.path().toString(), in.path().toString()};
    Process peer = LinkPeer.start("", LinkPeer.class, paths);
    try (BufferedReader lines = peer.inputReader()) {
      assertEquals("open", lines.readLine());
      assertEquals(List.of(), files());
      for (int i = 1; i <= 5000; i++) {
        long bytes = i == 5000 ? 0 : 1 + i % SLOT_BYTES;
        data.fill((byte) i);
        LinkPeer.await(out::hasRoom);
        out.send(data, 0, bytes, i);
        LinkPeer.await(in::ready);
        assertEquals(-i, in.signature());
        assertEquals(bytes, in.bytes());
        for (long at = 0; at < bytes; at++) {
          assertEquals((byte) (i + 1), in.memory().get(ValueLayout.JAVA_BYTE, in.offset() + at));
        }
        in.release();
      }
      assertTrue(peer.waitFor(60, TimeUnit.SECONDS), "the peer does not end after the empty slice");
      assertEquals(0, peer.exitValue());
    } finally {
      peer.destroyForcibly();
    }
  }

  @Test
  void killedPeerLeavesNoFileAndNoFault() throws Exception {
    SharedMemoryLink out = SharedMemoryLink.create(folder, arena, 2, SLOT_BYTES, 0, 1);
    SharedMemoryLink in = SharedMemoryLink.create(folder, arena, 2, SLOT_BYTES, 1, 0);
    String[] paths = {out.path().toString(), in.path().toString()};
    Process peer = LinkPeer.start("", LinkPeer.class, paths);
    try (BufferedReader lines = peer.inputReader()) {
      assertEquals("open", lines.readLine());
      out.send(data, 0, 8, 1);
      LinkPeer.await(in::ready);
    } finally {
      peer.destroyForcibly().waitFor();
    }
    assertEquals(List.of(), files());
    assertEquals(1, in.memory().get(ValueLayout.JAVA_BYTE, in.offset()));
    in.release();
    assertFalse(in.ready());
    out.send(data, 0, 8, 2);
  }

  @Test
  void fullDirectoryIsNamedAndLeftEmpty() throws Exception {
    Process process = LinkPeer.start("ulimit -f 1024;", NoRoom.class, folder.toString());
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor());
    assertTrue(output.contains(" bytes of shared memory cannot be allocated in " + folder), output);
    assertEquals(List.of(), files());
  }

  @Test
  void missingFileIsNamed() {
    Path missing = folder.resolve("missing");
    NcclSystemException failure =
        assertThrows(
            NcclSystemException.class, () -> SharedMemoryLink.open(missing, arena, 3, 5, 5));
    assertTrue(failure.getMessage().contains(missing.toString()), failure::toString);
  }

  @Test
  void otherFileIsRefusedAndNamesThePeer() throws IOException {
    Path text = Files.write(folder.resolve("text"), new byte[4096]);
    assertViolation("is not a link", () -> SharedMemoryLink.open(text, arena, 3, 5, 5));
    Path empty = Files.write(folder.resolve("short"), new byte[8]);
    assertViolation("is not a link", () -> SharedMemoryLink.open(empty, arena, 3, 5, 5));
  }

  @Test
  void linkOfOtherRanksOrSizesIsRefused() throws IOException {
    SharedMemoryLink out = create();
    assertViolation(
        "leads from rank 3 to rank 5, not from 3 to 4",
        () -> SharedMemoryLink.open(out.path(), arena, 3, 4, 4));
    out.memory().set(ValueLayout.JAVA_INT, 16, SLOTS + 1);
    assertViolation("in 5 slots of 1000", () -> open(out));
    out.memory().set(ValueLayout.JAVA_INT, 16, -1);
    assertViolation("in -1 slots of 1000", () -> open(out));
  }

  @Test
  void invalidSlotNamesTheSender() {
    SharedMemoryLink out = create();
    SharedMemoryLink in = open(out);
    MemorySegment memory = in.memory();
    memory.set(ValueLayout.JAVA_LONG, FIRST_SLOT, 17);
    assertViolation("it sent slice 17 instead of 1", in::ready);
    memory.set(ValueLayout.JAVA_LONG, FIRST_SLOT, 0);
    out.send(data, 0, 10, 1);
    memory.set(ValueLayout.JAVA_LONG, FIRST_SLOT + 8, SLOT_BYTES + 1);
    assertViolation("its slice 1 has 1001 bytes, in a slot of 1000", in::ready);
    memory.set(ValueLayout.JAVA_LONG, FIRST_SLOT + 8, -1);
    assertViolation("its slice 1 has -1 bytes", in::ready);
  }

  @Test
  void receiverThatReleasesUnsentSlicesIsNamed() {
    SharedMemoryLink out = create();
    for (int i = 0; i < SLOTS; i++) {
      out.send(data, 0, 1, 1);
    }
    out.memory().set(ValueLayout.JAVA_LONG, 128, SLOTS + 1);
    ProtocolViolationException failure =
        assertThrows(ProtocolViolationException.class, out::hasRoom);
    assertTrue(
        failure.getMessage().contains("rank 5 violated the protocol: it released slice 5 of 4"),
        failure::toString);
  }

  @Test
  void tooLargeSliceIsRefusedBeforeItIsWritten() {
    SharedMemoryLink out = create();
    MemorySegment large = arena.allocate(SLOT_BYTES + 1);
    assertThrows(IllegalArgumentException.class, () -> out.send(large, 0, SLOT_BYTES + 1, 1));
    assertFalse(open(out).ready());
  }

  @Test
  void accessAfterReleaseThrows() {
    SharedMemoryLink out = create();
    SharedMemoryLink in = open(out);
    arena.close();
    assertThrows(IllegalStateException.class, in::ready);
    assertThrows(IllegalStateException.class, () -> out.send(data, 0, 1, 1));
  }

  @Test
  void directoryIsInMemoryIfThereIsSpace() {
    assertEquals(
        Path.of(System.getProperty("java.io.tmpdir")), SharedMemory.directory(Long.MAX_VALUE));
    assertTrue(Files.isWritable(SharedMemory.directory(1)));
  }

  private static void assertViolation(String message, Executable call) {
    ProtocolViolationException failure = assertThrows(ProtocolViolationException.class, call);
    assertTrue(failure.getMessage().contains("rank 3 violated the protocol"), failure::toString);
    assertTrue(failure.getMessage().contains(message), failure::toString);
  }
}
