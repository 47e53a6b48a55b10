package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;

/**
 * Invalid arguments. They are refused before anything is launched, with a message that names the
 * argument, its value and the rule.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class ArgumentsContract {
  private Ranks ranks;
  private Rank rank;
  private Communicator comm;
  private Stream stream;

  abstract BackendUnderTest underTest();

  /** Opens at most three ranks; the tests use the last one, rank 2 of 3 if possible. */
  @BeforeAll
  void open() {
    ranks = Ranks.of(underTest(), Math.min(3, underTest().maxRanks()));
    rank = ranks.rank(ranks.size() - 1);
    comm = rank.comm();
    stream = rank.stream();
  }

  @AfterAll
  void close() {
    ranks.close();
  }

  /** Checks that no refused call has been launched: a collective of all ranks still succeeds. */
  @AfterEach
  void everyRankStillWorks() {
    rank.free();
    ranks.each(
        each -> {
          Buffer value = each.ints(1);
          each.comm().allReduce(value, value, ReduceOp.SUM, each.stream());
          assertArrayEquals(new int[] {ranks.size()}, each.downloadInts(value));
        });
  }

  @Test
  void nullArgumentIsRefusedByName() {
    Buffer a = ints(6);
    Buffer b = ints(6);
    nullRefused("send", () -> comm.allReduce(null, b, ReduceOp.SUM, stream));
    nullRefused("recv", () -> comm.allReduce(a, null, ReduceOp.SUM, stream));
    nullRefused("op", () -> comm.allReduce(a, b, null, stream));
    nullRefused("stream", () -> comm.allReduce(a, b, ReduceOp.SUM, null));
    nullRefused("recv", () -> comm.broadcast(a, null, 0, stream));
    nullRefused("send", () -> comm.broadcast(null, b, comm.rank(), stream));
    nullRefused("send", () -> comm.reduce(null, b, ReduceOp.SUM, 0, stream));
    nullRefused("recv", () -> comm.reduce(a, null, ReduceOp.SUM, comm.rank(), stream));
    nullRefused("op", () -> comm.reduce(a, b, null, 0, stream));
    nullRefused("send", () -> comm.allGather(null, b, stream));
    nullRefused("recv", () -> comm.allGather(a, null, stream));
    nullRefused("send", () -> comm.reduceScatter(null, b, ReduceOp.SUM, stream));
    nullRefused("op", () -> comm.reduceScatter(a, b, null, stream));
    nullRefused("send", () -> comm.allToAll(null, b, stream));
    nullRefused("recv", () -> comm.allToAll(a, null, stream));
    nullRefused("send", () -> comm.gather(null, b, 0, stream));
    nullRefused("recv", () -> comm.gather(a, null, comm.rank(), stream));
    nullRefused("recv", () -> comm.scatter(a, null, 0, stream));
    nullRefused("send", () -> comm.scatter(null, b, comm.rank(), stream));
    if (ranks.size() > 1) { // a single rank has no peer outside a group, and is the root
      int another = comm.rank() == 0 ? 1 : 0;
      nullRefused("send", () -> comm.reduce(null, ReduceOp.SUM, another, stream));
      nullRefused("op", () -> comm.reduce(a, null, another, stream));
      nullRefused("send", () -> comm.gather(null, another, stream));
      nullRefused("recv", () -> comm.scatter(null, another, stream));
      nullRefused("buffer", () -> comm.send(null, 0, stream));
      nullRefused("buffer", () -> comm.recv(null, 0, stream));
    }
    nullRefused("type", () -> comm.newPreMulSum(null, 1));
    nullRefused("scalar", () -> comm.newPreMulSum(null));
    nullRefused("type", () -> comm.newBuffer(null, 1));
  }

  @Test
  void rootOutOfRangeIsRefused() {
    Buffer a = ints(6);
    for (int root : new int[] {-1, ranks.size(), Integer.MAX_VALUE}) {
      String message = "root is " + root + "; it must be from 0 to " + (ranks.size() - 1);
      refused(message, () -> comm.broadcast(a, root, stream));
      refused(message, () -> comm.reduce(a, a, ReduceOp.SUM, root, stream));
      refused(message, () -> comm.gather(a, a, root, stream));
      refused(message, () -> comm.scatter(a, a, root, stream));
      refused(message, () -> comm.reduce(a, ReduceOp.SUM, root, stream));
      refused(message, () -> comm.gather(a, root, stream));
      refused(message, () -> comm.scatter(a, root, stream));
    }
  }

  @Test
  void rootMustPassBothBuffers() {
    Buffer a = ints(6);
    int root = comm.rank();
    String message = "root is this rank, " + root + "; the root must also pass ";
    refused(message + "recv", () -> comm.reduce(a, ReduceOp.SUM, root, stream));
    refused(message + "recv", () -> comm.gather(a, root, stream));
    refused(message + "send", () -> comm.scatter(a, root, stream));
  }

  @Test
  void peerOutOfRangeIsRefused() {
    Buffer a = ints(6);
    for (int peer : new int[] {-1, ranks.size()}) {
      String message = "peer is " + peer + "; it must be from 0 to " + (ranks.size() - 1);
      refused(message, () -> comm.send(a, peer, stream));
      refused(message, () -> comm.recv(a, peer, stream));
    }
  }

  @Test
  void sendOrReceiveToSelfOutsideGroupIsRefused() {
    Buffer a = ints(6);
    int me = comm.rank();
    String message =
        "peer is " + me + ", this rank itself; that needs a send and a receive in one group";
    refused(message, () -> comm.send(a, me, stream));
    refused(message, () -> comm.recv(a, me, stream));
  }

  @Test
  void mismatchedCountsAreRefused() {
    int n = ranks.size();
    Buffer six = ints(6);
    Buffer five = ints(5);
    String same = "recv has count 5; it must be that of send, 6";
    refused(same, () -> comm.allReduce(six, five, ReduceOp.SUM, stream));
    refused(same, () -> comm.broadcast(six, five, 0, stream));
    refused(same, () -> comm.reduce(six, five, ReduceOp.SUM, comm.rank(), stream));
    refused(same, () -> comm.allToAll(six, five, stream));
    Buffer part = ints(2);
    Buffer wrong = ints(2 * n + 1);
    String recv =
        "recv has count %d; it must be size * send's count, %d * 2".formatted(2 * n + 1, n);
    refused(recv, () -> comm.allGather(part, wrong, stream));
    refused(recv, () -> comm.gather(part, wrong, comm.rank(), stream));
    String send =
        "send has count %d; it must be size * recv's count, %d * 2".formatted(2 * n + 1, n);
    refused(send, () -> comm.reduceScatter(wrong, part, ReduceOp.SUM, stream));
    refused(send, () -> comm.scatter(wrong, part, comm.rank(), stream));
  }

  @Test
  void allToAllCountNotDivisibleBySizeIsRefused() {
    int n = ranks.size();
    assumeTrue(n > 1, "every count is a multiple of one rank");
    Buffer a = ints(2 * n + 1);
    Buffer b = ints(2 * n + 1);
    refused(
        "send has count %d; it must be a multiple of the communicator's size, %d"
            .formatted(2 * n + 1, n),
        () -> comm.allToAll(a, b, stream));
  }

  @Test
  void buffersOfDifferentTypesAreRefused() {
    int n = ranks.size();
    Buffer ints = ints(n);
    Buffer floats = rank.allocate(DataType.FLOAT32, n);
    Buffer one = rank.allocate(DataType.FLOAT32, 1);
    String message = "recv has type FLOAT32; it must be INT32, as in send";
    refused(message, () -> comm.allReduce(ints, floats, ReduceOp.SUM, stream));
    refused(message, () -> comm.broadcast(ints, floats, comm.rank(), stream));
    refused(message, () -> comm.reduce(ints, floats, ReduceOp.SUM, comm.rank(), stream));
    refused(message, () -> comm.allToAll(ints, floats, stream));
    refused(message, () -> comm.allGather(ints, floats, stream));
    refused(message, () -> comm.gather(ints, floats, comm.rank(), stream));
    refused(message, () -> comm.reduceScatter(ints, one, ReduceOp.SUM, stream));
    refused(message, () -> comm.scatter(ints, one, comm.rank(), stream));
  }

  @Test
  void overlapThatIsNotInPlaceIsRefused() {
    int n = ranks.size();
    Buffer all = ints(4 * n + 4);
    Buffer low = all.slice(0, 2L * n);
    Buffer shifted = all.slice(1, 2L * n);
    String same = "send and recv overlap; they must be separate, or in-place: the same memory";
    refused(same, () -> comm.allReduce(low, shifted, ReduceOp.SUM, stream));
    refused(same, () -> comm.allReduce(shifted, low, ReduceOp.SUM, stream));
    refused(same, () -> comm.broadcast(low, shifted, comm.rank(), stream));
    refused(same, () -> comm.reduce(low, shifted, ReduceOp.SUM, comm.rank(), stream));
    String none = "send and recv overlap; allToAll has no in-place form";
    refused(none, () -> comm.allToAll(low, low, stream));
    refused(none, () -> comm.allToAll(low, shifted, stream));
    // The in-place slice begins at rank * 2; this one begins one element later.
    Buffer wrong = all.slice(2L * comm.rank() + 1, 2);
    refused(
        "send and recv overlap; they must be separate, or in-place: send == recv + rank * count",
        () -> comm.allGather(wrong, all.slice(0, 2L * n), stream));
    refused(
        "send and recv overlap; they must be separate, or in-place: recv == send + rank * count",
        () -> comm.reduceScatter(all.slice(0, 2L * n), wrong, ReduceOp.SUM, stream));
    refused(
        "send and recv overlap; they must be separate, or in-place: send == recv + root * count",
        () -> comm.gather(wrong, all.slice(0, 2L * n), comm.rank(), stream));
    refused(
        "send and recv overlap; they must be separate, or in-place: recv == send + root * count",
        () -> comm.scatter(all.slice(0, 2L * n), wrong, comm.rank(), stream));
  }

  @Test
  void adjacentBuffersDoNotOverlap() {
    ranks.each(
        each -> {
          Buffer all = each.ints(1, 2, 0, 0);
          each.comm().allReduce(all.slice(0, 2), all.slice(2, 2), ReduceOp.SUM, each.stream());
          int n = ranks.size();
          assertArrayEquals(new int[] {1, 2, n, 2 * n}, each.downloadInts(all));
        });
  }

  @Test
  void everyOperationRefusesClosedBufferOrStream() {
    Buffer closed = comm.newBuffer(DataType.INT32, 6);
    closed.close();
    Stream closedStream = comm.newStream();
    closedStream.close();
    Buffer valid = ints(6);
    everyOperation(closed, stream, use -> closedRefused(" is closed: Buffer", use));
    everyOperation(valid, closedStream, use -> closedRefused("stream is closed: ", use));
  }

  @Test
  void everyOperationRefusesBufferOrStreamOfAnotherDevice() {
    int devices = ranks.backend().devices().size();
    assumeTrue(devices > 1, "needs two devices");
    int other = (comm.device() + 1) % devices;
    try (Buffer foreign = ranks.backend().newBuffer(other, DataType.INT32, 6);
        Stream foreignStream = ranks.backend().newStream(other)) {
      Buffer valid = ints(6);
      everyOperation(
          foreign,
          stream,
          use -> refusedContaining("it must be usable on this rank's device", use));
      everyOperation(
          valid, foreignStream, use -> refusedContaining("it must be of this rank's device", use));
    }
  }

  @Test
  void bufferOfAnotherDeviceTypeIsRefused() {
    try (Backend reference = Backend.reference(1)) {
      assumeTrue(reference.deviceType() != ranks.backend().deviceType(), "this is the reference");
      try (Buffer foreign = reference.newBuffer(0, DataType.INT32, 6);
          Stream foreignStream = reference.newStream(0)) {
        refusedContaining(
            "usable on this rank's device",
            () -> comm.allReduce(foreign, foreign, ReduceOp.SUM, stream));
        Buffer valid = ints(6);
        refusedContaining(
            "of this rank's device",
            () -> comm.allReduce(valid, valid, ReduceOp.SUM, foreignStream));
      }
    }
  }

  @Test
  void rankOutOfRangeIsRefused() {
    Backend backend = ranks.backend();
    UniqueId id = backend.newUniqueId();
    CommunicatorConfig config = underTest().config();
    refused("rank is -1; it must be from 0 to 1", () -> backend.newCommunicator(id, 2, -1, config));
    refused("rank is 2; it must be from 0 to 1", () -> backend.newCommunicator(id, 2, 2, config));
    refused(
        "worldSize is 0; it must be 1 or more", () -> backend.newCommunicator(id, 0, 0, config));
    nullRefused("id", () -> backend.newCommunicator(null, 1, 0, config));
    nullRefused("config", () -> backend.newCommunicator(id, 1, 0, null));
  }

  @Test
  void nonexistentDeviceIsRefused() {
    Backend backend = ranks.backend();
    int devices = backend.devices().size();
    for (int device : new int[] {-1, devices}) {
      String message = "device is " + device + "; it must be from 0 to " + (devices - 1);
      refused(message, () -> backend.newStream(device));
      refused(message, () -> backend.newEvent(device));
      refused(message, () -> backend.newBuffer(device, DataType.INT8, 1));
      refused(message, () -> backend.newCommunicators(new int[] {0, device}, underTest().config()));
    }
    UniqueId id = backend.newUniqueId();
    refused(
        "device is " + devices + "; it must be from 0 to " + (devices - 1),
        () -> backend.newCommunicator(id, 1, 0, underTest().config().withDevice(devices)));
  }

  @Test
  void emptyDeviceListIsRefused() {
    refused(
        "devices is empty; there must be one for each rank",
        () -> ranks.backend().newCommunicators(new int[0], underTest().config()));
  }

  @Test
  void nullElementIsRefusedByName() {
    Set<Integer> excluded = new HashSet<>(Arrays.asList(0, null));
    CommunicatorConfig config = underTest().config();
    nullRefused(
        "excludedRanks has a null element",
        () -> comm.shrink(excluded, ShrinkMode.FINISH_FIRST, config));
    nullRefused("excludedRanks", () -> comm.shrink(null, ShrinkMode.FINISH_FIRST, config));
    nullRefused(
        "streams has a null element, at index 1",
        () -> Graph.capture(Arrays.asList(stream, null), () -> {}));
    nullRefused("streams", () -> Graph.capture((List<Stream>) null, () -> {}));
    nullRefused("devices", () -> ranks.backend().newCommunicators(null, config));
  }

  private Buffer ints(int count) {
    return rank.allocate(DataType.INT32, count);
  }

  /** Passes a call of each operation with this buffer and stream to a check. */
  private void everyOperation(Buffer buffer, Stream on, Consumer<Executable> check) {
    int me = comm.rank();
    check.accept(() -> comm.allReduce(buffer, buffer, ReduceOp.SUM, on));
    check.accept(() -> comm.broadcast(buffer, me, on));
    check.accept(() -> comm.reduce(buffer, buffer, ReduceOp.SUM, me, on));
    if (ranks.size() == 3) {
      check.accept(() -> comm.send(buffer, 0, on));
      check.accept(() -> comm.recv(buffer, 0, on));
      Buffer two = ints(2);
      Buffer six = ints(6);
      check.accept(() -> comm.allGather(two, buffer, on));
      check.accept(() -> comm.reduceScatter(buffer, two, ReduceOp.SUM, on));
      check.accept(() -> comm.allToAll(buffer, six, on));
      check.accept(() -> comm.allToAll(six, buffer, on));
      check.accept(() -> comm.gather(two, buffer, me, on));
      check.accept(() -> comm.scatter(buffer, two, me, on));
    }
  }

  private static void nullRefused(String argument, Executable use) {
    assertEquals(argument, assertThrows(NullPointerException.class, use).getMessage());
  }

  private static void refused(String message, Executable use) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, use).getMessage());
  }

  private static void refusedContaining(String part, Executable use) {
    Throwable thrown = assertThrows(IllegalArgumentException.class, use);
    assertTrue(thrown.getMessage().contains(part), thrown::toString);
  }

  private static void closedRefused(String part, Executable use) {
    Throwable thrown = assertThrows(IllegalStateException.class, use);
    assertTrue(thrown.getMessage().contains(part), thrown::toString);
  }
}
