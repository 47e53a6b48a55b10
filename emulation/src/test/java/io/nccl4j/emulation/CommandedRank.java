package io.nccl4j.emulation;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.Recovery;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.libraries.StandIn;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotLinkException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * One rank in its own process, for {@link LostRanksTest}: {@code CommandedRank RANK}. Executes the
 * lines of its standard input as commands, and prints one line for each: {@code ok} and a result,
 * or {@code failed} and an exception. It ends with its input.
 */
public final class CommandedRank {
  /** More elements than the buffers of a connection hold. */
  private static final int COUNT = 3 << 20;

  private static final int ONES = 0x01010101;

  // Without events: nccl4j keeps as many as launches were pending at once.
  private static final List<String> KINDS =
      List.of("memory", "pinned", "stream", "physical", "reservation", "mapping");

  private final int rank;
  private final Backend backend = Backend.nccl();
  private final Stream stream;
  private final Buffer data;
  private final List<Communicator> comms = new ArrayList<>();

  /** The last one. */
  private NcclException failure;

  private CommandedRank(int rank) {
    this.rank = rank;
    this.stream = backend.newStream(rank);
    this.data = backend.newBuffer(rank, DataType.INT32, COUNT);
  }

  /** Executes the commands, and halts. */
  public static void main(String[] arguments) throws IOException {
    // Java keeps a descriptor from its first socket on, which a time-out opens to ask RAS.
    new ServerSocket(0).close();
    CommandedRank self = new CommandedRank(Integer.parseInt(arguments[0]));
    BufferedReader commands =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String reply;
      try {
        reply = "ok " + self.execute(line.split(" ", -1));
      } catch (NcclException failure) {
        self.failure = failure;
        reply =
            "failed %s; missing %s, failed %s"
                .formatted(failure, failure.missingRanks(), failure.failedRanks());
      } catch (RuntimeException | IOException failure) {
        reply = "failed " + failure;
      }
      System.out.println(reply.replace('\n', ' '));
    }
    Runtime.getRuntime().halt(0);
  }

  private Object execute(String[] words) throws IOException {
    switch (words[0]) {
      case "id" -> {
        return backend.newUniqueId().toHex();
      }
      case "create" -> create(words);
      case "enqueue" -> {
        data.fill((byte) 1, stream);
        comm().allReduce(data, data, ReduceOp.SUM, stream);
      }
      case "await" -> {
        stream.synchronize(Duration.ofSeconds(Long.parseLong(words[1])));
        return sum();
      }
      case "error" -> {
        return awaitError();
      }
      case "split" -> comms.add(comm().split(0, rank));
      case "recover" -> {
        comms.add(Recovery.defaults().recover(comm(), failure));
        drain();
      }
      case "shrink" -> shrink(Integer.parseInt(words[1]));
      case "abort" -> {
        comms.forEach(Communicator::abort);
        comms.clear();
        drain();
      }
      case "close" -> {
        comms.reversed().forEach(Communicator::close);
        comms.clear();
      }
      case "left" -> {
        return left();
      }
      default -> throw new IllegalArgumentException(words[0]);
    }
    return "";
  }

  /** Executes {@code create ID SIZE SECONDS BLOCKING}. */
  private void create(String[] words) {
    CommunicatorConfig config =
        CommunicatorConfig.defaults()
            .withDevice(rank)
            .withTimeout(Duration.ofSeconds(Long.parseLong(words[3])))
            .withBlocking(Boolean.parseBoolean(words[4]));
    UniqueId id = UniqueId.fromHex(words[1]);
    comms.add(backend.newCommunicator(id, Integer.parseInt(words[2]), rank, config));
  }

  private Communicator comm() {
    return comms.getLast();
  }

  private void shrink(int lost) {
    comms.add(comm().shrink(Set.of(lost), ShrinkMode.ABORT_FIRST));
    drain();
  }

  /** Returns the sum of one from each rank, if all elements have it. */
  private String sum() {
    int[] values = new int[COUNT];
    data.copyTo(values, stream);
    for (int value : values) {
      if (value != values[0]) {
        return "different values";
      }
    }
    return values[0] % ONES == 0 ? Integer.toString(values[0] / ONES) : "wrong values";
  }

  /** Waits until the communicator reports a failure by itself. */
  private String awaitError() {
    long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
    while (System.nanoTime() < end) {
      Optional<NcclException> error = comm().asyncError();
      if (error.isPresent()) {
        return error.get().toString();
      }
      try {
        TimeUnit.MILLISECONDS.sleep(10);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
    return "none";
  }

  /** Waits for work that has been aborted, which the stream reports first. */
  private void drain() {
    try {
      stream.synchronize(Duration.ofMinutes(1));
    } catch (NcclException aborted) {
      stream.synchronize(Duration.ofMinutes(1));
    }
  }

  /** Returns the numbers of emulated objects, threads and descriptors of this process. */
  private static String left() throws IOException {
    StringBuilder left = new StringBuilder();
    KINDS.forEach(kind -> left.append(kind).append(' ').append(StandIn.live(kind)).append(' '));
    return left + "threads " + entries("task") + " descriptors " + entries("fd");
  }

  /** Returns whether it is the lock of the records of operations, which stay after a failure. */
  private static boolean isRecordsLock(Path descriptor) throws IOException {
    try {
      return Files.readSymbolicLink(descriptor).endsWith("lock");
    } catch (NotLinkException | NoSuchFileException thread) {
      return false;
    }
  }

  private static int entries(String folder) throws IOException {
    int count = 0;
    try (DirectoryStream<Path> entries = Files.newDirectoryStream(Path.of("/proc/self", folder))) {
      for (Path entry : entries) {
        count += isRecordsLock(entry) ? 0 : 1;
      }
    }
    return count;
  }
}
