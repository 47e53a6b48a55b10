package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.Recovery;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.IntUnaryOperator;
import java.util.function.Supplier;

/**
 * One rank of a job of {@link FaultCampaign}: repeats one phase until a call fails, continues
 * without the lost rank, closes everything, and prints its results and the resources that it has
 * left.
 *
 * <p>Each line it prints starts with the time in microseconds and one of the {@link Event}s.
 */
public final class FaultCampaignRank {
  /** The kind of a printed line. */
  enum Event {
    READY,
    WRONG,
    FAILED,
    RECOVERED,
    NOT_RECOVERED,
    LEFT
  }

  private static final String BASE = "base";
  private static final int[] COUNTS = {1, 100, 5_000, 60_000};
  private static final int LARGEST = 60_000;
  private static final Duration STARTING = Duration.ofSeconds(60);
  private static final long CLEANUP_NANOS = TimeUnit.SECONDS.toNanos(9);

  /** Threads that stay: for leaks, and for the MBean server while a backend is open. */
  private static final Set<String> OF_THE_PROCESS = Set.of("nccl4j-leaks", "nccl4j-jmx");

  private final int rank;
  private final int size;
  private final Path folder;
  private final FaultCampaign.Phase phase;
  private final long seed;
  private final CommunicatorConfig config;
  private final Backend backend;
  private final Buffer input;
  private final Buffer output;
  private final List<AutoCloseable> owners = new ArrayList<>();
  private Stream stream;
  private final int descriptorsBefore = jdkDescriptors();
  private Communicator world;
  // The child of the world in which the ranks work, in the opposite order.
  private Communicator base;
  private String step = "";
  // Returns the world's rank of a rank of the communicator that is in use.
  private IntUnaryOperator worldRank = r -> r;

  private FaultCampaignRank(String[] arguments) {
    rank = Integer.parseInt(arguments[0]);
    size = Integer.parseInt(arguments[1]);
    folder = Path.of(arguments[2]);
    phase = FaultCampaign.Phase.valueOf(arguments[4]);
    seed = Long.parseLong(arguments[5]);
    config =
        CommunicatorConfig.defaults()
            .withDevice(0)
            .withTimeout(Duration.ofMillis(Long.parseLong(arguments[6])));
    backend =
        ReferenceBackend.open(
            1, ReferenceOptions.defaults().withTransport(Transport.valueOf(arguments[3])));
    input = backend.newBuffer(0, DataType.INT32, (long) size * LARGEST);
    output = backend.newBuffer(0, DataType.INT32, (long) size * LARGEST);
    owners.addAll(List.of(input, output));
    newStream();
  }

  private void newStream() {
    stream = backend.newStream(0);
    owners.addFirst(stream);
  }

  /** Runs; the arguments are rank, size, folder, links, phase, seed and timeout in milliseconds. */
  public static void main(String[] arguments) {
    new FaultCampaignRank(arguments).run();
    System.exit(0);
  }

  private static void print(Event event, Object text) {
    long micros = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    System.out.println(micros + " " + event + " " + text.toString().replace('\n', ' '));
  }

  private void run() {
    try {
      // Processes may take long to start, independent of the timeout of the jobs.
      Communicator all = connect("start", config.withTimeout(STARTING));
      owners.addFirst(all);
      world = all.split(0, rank, config);
      owners.addFirst(world);
      base = world.split(0, size - 1 - rank, config.withName(BASE));
      owners.addFirst(base);
      for (int round = 0; ; round++) {
        repeat(round);
        if (round == 1) {
          print(Event.READY, "");
        }
      }
    } catch (RuntimeException | Error failure) {
      failure.printStackTrace();
      NcclException known = failure instanceof NcclException nccl ? nccl : null;
      // A rendezvous has no communicator whose ranks it could name.
      boolean named = known != null && !known.function().contains("Rendezvous");
      String lost = named ? lost(known) : "";
      print(
          Event.FAILED,
          String.join("|", step, failure.getClass().getSimpleName(), lost, failure.getMessage()));
      if (world != null) {
        recover(known == null ? new NcclException("rendezvous", 6, step, "") : known);
      }
    }
    closeAll();
    awaitNothingLeft();
  }

  /** Returns the ranks that a failure names, as ranks of the world. */
  private String lost(NcclException failure) {
    // A wait for the stream of both communicators may throw the failure of either.
    boolean ofBase = failure.getMessage().contains("Communicator[" + BASE + ": ");
    IntUnaryOperator worldRanks = ofBase ? r -> size - 1 - r : worldRank;
    Set<Integer> lost = new TreeSet<>();
    failure.failedRanks().forEach(each -> lost.add(worldRanks.applyAsInt(each)));
    failure.missingRanks().forEach(each -> lost.add(worldRanks.applyAsInt(each)));
    return lost.toString();
  }

  private Communicator connect(String run, CommunicatorConfig settings) {
    RankInfo rankInfo =
        RankInfo.of(rank, size).withJobId(run).withTimeout(settings.timeout().orElseThrow());
    try (Rendezvous rendezvous = Rendezvous.files(folder, rankInfo)) {
      return rendezvous.newCommunicator(backend, settings);
    }
  }

  private void repeat(int round) {
    int last = size - 1;
    worldRank = r -> last - r;
    switch (phase) {
      case RENDEZVOUS -> {
        worldRank = r -> r;
        useAndClose("rendezvous", () -> connect("round" + round, config), r -> r, round);
      }
      case CONNECT -> {
        UniqueId id = shareId();
        worldRank = r -> r;
        useAndClose(
            "connect", () -> backend.newCommunicator(id, size, rank, config), r -> r, round);
      }
      case COLLECTIVE -> {
        step = "collective";
        collective(base, round);
      }
      case SPLIT -> useAndClose("split", () -> base.split(0, rank, config), r -> r, round);
      case SHRINK -> {
        int excluded = round % size;
        if (excluded != base.rank()) {
          Set<Integer> without = Set.of(excluded);
          useAndClose(
              "shrink",
              () -> base.shrink(without, ShrinkMode.FINISH_FIRST, config),
              r -> last - (r < excluded ? r : r + 1),
              round);
          worldRank = r -> last - r;
        }
        step = "all-reduce after a shrink";
        allReduce(base, 1, round);
      }
      case CLOSE -> {
        step = "split before a close";
        Communicator child = base.split(0, rank, config);
        worldRank = r -> r;
        // The close waits for this operation, which has only just begun.
        child.allReduce(input.slice(0, LARGEST), output.slice(0, LARGEST), ReduceOp.SUM, stream);
        step = "close";
        child.close();
      }
    }
  }

  /** Creates a communicator, reduces, and closes it; {@code step} names the step that fails. */
  private void useAndClose(
      String how, Supplier<Communicator> factory, IntUnaryOperator worldRankOfCreated, int round) {
    step = how;
    try (Communicator created = factory.get()) {
      worldRank = worldRankOfCreated;
      step = "all-reduce after a " + how;
      allReduce(created, count(round), round);
      step = "close after a " + how;
    }
  }

  /** Creates a new id on rank 0, and broadcasts it. */
  private UniqueId shareId() {
    step = "broadcast of an id";
    if (rank != 0) {
      return UniqueId.of(broadcast(new byte[UniqueId.BYTES]));
    }
    UniqueId id = backend.newUniqueId();
    try {
      broadcast(id.toBytes());
    } catch (RuntimeException failure) {
      backend.closeUniqueId(id);
      throw failure;
    }
    return id;
  }

  private byte[] broadcast(byte[] id) {
    Buffer bytes = input.slice(0, UniqueId.BYTES / Integer.BYTES);
    bytes.copyFromAsync(MemorySegment.ofArray(id), stream);
    // The base has the ranks in the opposite order.
    base.broadcast(bytes, size - 1, stream);
    stream.synchronize();
    bytes.copyTo(MemorySegment.ofArray(id), stream);
    return id;
  }

  private int count(int round) {
    return COUNTS[new SplittableRandom(seed + round).nextInt(COUNTS.length)];
  }

  private static int element(int rank, int round, int index) {
    return (rank + 1) * (round % 1000 + index % 13);
  }

  private static int sum(int size, int round, int index) {
    return size * (size + 1) / 2 * element(0, round, index);
  }

  private void collective(Communicator comm, int round) {
    int count = count(round);
    int n = comm.size();
    int r = comm.rank();
    int root = round % n;
    Buffer part = fill(input, count, i -> element(r, round, i));
    Buffer all = output.slice(0, (long) n * count);
    switch (round % 5) {
      case 0 -> allReduce(comm, count, round);
      case 1 -> {
        comm.broadcast(part, root, stream);
        check("broadcast", part, i -> element(root, round, i));
      }
      case 2 -> {
        comm.allGather(part, all, stream);
        check("allGather", all, i -> element(i / count, round, i % count));
      }
      case 3 -> {
        Buffer whole = fill(output, n * count, i -> element(r, round, i));
        comm.reduceScatter(whole, part, ReduceOp.SUM, stream);
        check("reduceScatter", part, i -> sum(n, round, r * count + i));
      }
      default -> {
        Buffer got = output.slice(0, count);
        int from = (r + n - 1) % n;
        Group.run(
            () -> {
              comm.send(part, (r + 1) % n, stream);
              comm.recv(got, from, stream);
            });
        check("recv", got, i -> element(from, round, i));
      }
    }
  }

  private void allReduce(Communicator comm, int count, int round) {
    Buffer part = fill(input, count, i -> element(comm.rank(), round, i));
    comm.allReduce(part, part, ReduceOp.SUM, stream);
    check("allReduce", part, i -> sum(comm.size(), round, i));
  }

  private Buffer fill(Buffer whole, int count, IntUnaryOperator values) {
    int[] elements = new int[count];
    Arrays.setAll(elements, values);
    Buffer part = whole.slice(0, count);
    part.copyFromAsync(MemorySegment.ofArray(elements), stream);
    return part;
  }

  private void check(String what, Buffer found, IntUnaryOperator expected) {
    int[] elements = new int[(int) found.count()];
    stream.synchronize();
    found.copyTo(MemorySegment.ofArray(elements), stream);
    for (int i = 0; i < elements.length; i++) {
      if (elements[i] != expected.applyAsInt(i)) {
        print(
            Event.WRONG,
            "%s of %d: element %d is %d and must be %d"
                .formatted(what, elements.length, i, elements[i], expected.applyAsInt(i)));
        return;
      }
    }
  }

  /** Continues with the remaining ranks, as the documentation shows. */
  private void recover(NcclException failure) {
    // The previous stream still reports the abort.
    newStream();
    try (Communicator rest = Recovery.defaults().recover(world, failure)) {
      for (int round = 0; round < 10; round++) {
        collective(rest, round);
      }
      print(Event.RECOVERED, rest.size());
    } catch (RuntimeException | Error another) {
      another.printStackTrace();
      print(Event.NOT_RECOVERED, another);
    }
  }

  private static void pause() {
    try {
      TimeUnit.MILLISECONDS.sleep(10);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private void closeAll() {
    for (AutoCloseable owner : owners) {
      try {
        owner.close();
      } catch (NcclException | IllegalStateException expected) {
        // A close reports the failure again; it was printed before.
        System.err.println("close: " + expected);
      } catch (Exception e) {
        throw new AssertionError(e);
      }
    }
  }

  /** Waits until no threads, descriptors and mappings are left; prints those left at the end. */
  private void awaitNothingLeft() {
    long start = System.nanoTime();
    List<String> left = left();
    while (!left.isEmpty() && System.nanoTime() - start < CLEANUP_NANOS) {
      pause();
      left = left();
    }
    print(Event.LEFT, left);
  }

  private List<String> left() {
    List<String> left = new ArrayList<>();
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      String name = thread.getName();
      if (name.startsWith("nccl4j-") && !OF_THE_PROCESS.contains(name)) {
        left.add("thread " + name);
      }
    }
    List<String> descriptors = descriptors();
    if (descriptors.size() > descriptorsBefore) {
      left.addAll(descriptors);
    }
    try (java.util.stream.Stream<String> maps = Files.lines(Path.of("/proc/self/maps"))) {
      maps.filter(line -> line.matches(".*/nccl4j-[0-9a-f]{16}-.*")).forEach(left::add);
    } catch (IOException e) {
      throw new AssertionError(e);
    }
    return left;
  }

  /** Returns the number of descriptors that the JDK keeps after using sockets and selectors. */
  private static int jdkDescriptors() {
    InetSocketAddress anywhere = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    try (Selector selector = Selector.open();
        ServerSocketChannel server = ServerSocketChannel.open().bind(anywhere);
        SocketChannel client = SocketChannel.open(server.getLocalAddress())) {
      client.configureBlocking(false).register(selector, SelectionKey.OP_READ);
      selector.selectNow();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
    return descriptors().size();
  }

  /** Returns the sockets, selectors and shared memory that this process has open. */
  private static List<String> descriptors() {
    List<String> found = new ArrayList<>();
    try (java.util.stream.Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
      for (Path descriptor : open.toList()) {
        String target = target(descriptor);
        if (target.matches("socket:.*|anon_inode:.*event.*|.*/nccl4j-[0-9a-f]{16}-.*")) {
          found.add("descriptor of " + target);
        }
      }
    } catch (IOException e) {
      throw new AssertionError(e);
    }
    return found;
  }

  /** Returns the target of a descriptor, or "" if another thread has just closed it. */
  private static String target(Path descriptor) throws IOException {
    try {
      return Files.readSymbolicLink(descriptor).toString();
    } catch (NoSuchFileException closed) {
      return "";
    }
  }
}
