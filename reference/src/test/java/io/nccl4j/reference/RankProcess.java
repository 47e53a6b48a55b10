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
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.BootstrapTarget;
import io.nccl4j.internal.reference.bootstrap.InitBootstrap;
import io.nccl4j.internal.reference.bootstrap.Participant;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.transport.SharedMemoryLink;
import io.nccl4j.internal.reference.transport.TcpSendLink;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.spi.Contract;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;

/**
 * A process with some ranks of a communicator, for tests with several processes: runs one program
 * on each of its ranks, and prints the results.
 */
public final class RankProcess {
  private static final CommunicatorConfig PATIENT =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(60));

  private final UniqueId id;
  private final int size;
  private final CommunicatorConfig config;
  private final Backend backend;
  private final String argument;

  private RankProcess(String[] arguments) {
    this.id = UniqueId.fromHex(arguments[0]);
    this.size = Integer.parseInt(arguments[1]);
    this.config =
        CommunicatorConfig.defaults().withTimeout(Duration.ofMillis(Long.parseLong(arguments[3])));
    this.backend =
        ReferenceBackend.open(
            size,
            ReferenceOptions.defaults()
                .withTransport(Transport.valueOf(arguments[4]))
                .withAlgorithm(Algorithm.valueOf(arguments[7])));
    this.argument = arguments[6];
  }

  /**
   * Runs ranks; the arguments are id, size, ranks, timeout in milliseconds, links, program, its
   * argument and algorithm.
   */
  public static void main(String[] arguments) throws InterruptedException {
    RankProcess process = new RankProcess(arguments);
    List<Thread> ranks = new ArrayList<>();
    for (String rank : arguments[2].split(",", -1)) {
      int number = Integer.parseInt(rank);
      ranks.add(
          Thread.ofPlatform()
              .name("rank-" + rank)
              .start(() -> process.report(arguments[5], number)));
    }
    for (Thread rank : ranks) {
      rank.join();
    }
    System.exit(0);
  }

  private void report(String program, int rank) {
    try {
      run(program, rank);
      print(rank, "ends");
    } catch (Exception e) {
      print(rank, "failed: " + e);
      e.printStackTrace();
    }
  }

  private static void print(int rank, String text) {
    System.out.println("rank " + rank + ": " + text.replace('\n', ' '));
  }

  private void run(String program, int rank) throws Exception {
    if (program.equals("join")) {
      joinByGrow(rank);
      return;
    }
    if (program.equals("assign-only") && argument.equals(Integer.toString(rank))) {
      joinWithoutConnecting(rank);
      return;
    }
    try (Communicator comm = backend.newCommunicator(id, size, rank, PATIENT);
        Stream stream = comm.newStream()) {
      switch (program) {
        case "everything" -> everything(comm, stream);
        case "differ" -> differ(comm, stream);
        case "die-idle" -> outliveAnIdleRank(comm);
        case "die-connecting" -> outliveAConnectingRank(comm);
        case "grow" -> grow(comm);
        case "close" -> closeEarly(comm, stream);
        case "children" -> keepChildren(comm);
        case "drill" ->
            DrillRank.run(
                comm, config, PATIENT, Integer.parseInt(argument), text -> print(rank, text));
        // Ranks that connected before the other was killed are notified later.
        case "assign-only" -> print(rank, "ended by " + awaitAsyncError(comm));
        case "loop", "chain", "invalid-data", "invalid-control" -> {
          // Processes may take long to start, independent of the timeout under test.
          try (Communicator timed = comm.split(0, rank, config)) {
            loop(program, timed, stream);
          }
        }
        default -> throw new IllegalArgumentException(program);
      }
    } catch (NcclException e) {
      print(rank, "ended by " + e);
    }
  }

  /** Joins, and stops between the assignment and the connections that it requires. */
  private void joinWithoutConnecting(int rank) throws InterruptedException {
    BootstrapTarget.JoinRequest request =
        new BootstrapTarget.JoinRequest(
            size, rank, ReferenceBackend.of(backend).options().toString(), null);
    Deadline deadline = Deadline.after(config.timeout().orElseThrow());
    Bootstrap bootstrap =
        InitBootstrap.of(ProcessEndpoint.ofThisProcess(), id, InitBootstrap.CONNECT, request)
            .admit(request, deadline);
    bootstrap.awaitAssignment(
        new Participant(bootstrap, rank, "rank " + rank, deadline, () -> null));
    print(rank, "has the rank map");
    Thread.sleep(config.timeout().orElseThrow());
  }

  private static Buffer ints(Communicator comm, Stream stream, int... values) {
    Buffer buffer = comm.newBuffer(DataType.INT32, values.length);
    buffer.copyFromAsync(MemorySegment.ofArray(values), stream);
    return buffer;
  }

  private static int[] read(Buffer buffer, Stream stream) {
    int[] values = new int[(int) buffer.count()];
    buffer.copyTo(MemorySegment.ofArray(values), stream);
    return values;
  }

  private static void expect(String what, int[] expected, Buffer buffer, Stream stream) {
    int[] found = read(buffer, stream);
    if (!Arrays.equals(expected, found)) {
      throw new AssertionError(what + " gave " + Arrays.toString(found));
    }
  }

  private static int sum(Communicator comm, int mine) {
    try (Stream stream = comm.newStream();
        Buffer value = ints(comm, stream, mine)) {
      comm.allReduce(value, value, ReduceOp.SUM, stream);
      return read(value, stream)[0];
    }
  }

  private static void everything(Communicator comm, Stream stream) {
    int n = comm.size();
    int r = comm.rank();
    int root = n - 1;
    int total = n * (n - 1) / 2;
    int[] all = IntStream.range(0, n).toArray();
    Buffer large = comm.newBuffer(DataType.INT32, 300_000);
    large.fill((byte) 1, stream);
    comm.allReduce(large, large, ReduceOp.SUM, stream);
    int[] sums = new int[300_000];
    Arrays.fill(sums, 0x01010101 * n);
    expect("allReduce", sums, large, stream);
    Buffer one = ints(comm, stream, r);
    Buffer many = comm.newBuffer(DataType.INT32, n);
    comm.reduce(one, one, ReduceOp.SUM, root, stream);
    expect("reduce", new int[] {r == root ? total : r}, one, stream);
    comm.broadcast(one, root, stream);
    expect("broadcast", new int[] {total}, one, stream);
    Buffer own = ints(comm, stream, r);
    comm.allGather(own, many, stream);
    expect("allGather", all, many, stream);
    comm.reduceScatter(many, own, ReduceOp.SUM, stream);
    expect("reduceScatter", new int[] {n * r}, own, stream);
    Buffer out = ints(comm, stream, IntStream.range(0, n).map(peer -> 100 * r + peer).toArray());
    comm.allToAll(out, many, stream);
    expect("allToAll", IntStream.range(0, n).map(p -> 100 * p + r).toArray(), many, stream);
    comm.scatter(r == root ? many : null, own, root, stream);
    expect("scatter", new int[] {100 * r + root}, own, stream);
    comm.gather(own, r == root ? many : null, root, stream);
    if (r == root) {
      expect("gather", IntStream.range(0, n).map(p -> 100 * p + root).toArray(), many, stream);
    }
    messages(comm, stream);
    children(comm);
  }

  private static void messages(Communicator comm, Stream stream) {
    int n = comm.size();
    int next = (comm.rank() + 1) % n;
    int previous = (comm.rank() + n - 1) % n;
    Buffer mine = ints(comm, stream, comm.rank());
    Buffer others = ints(comm, stream, -1);
    Buffer reduced = ints(comm, stream, comm.rank());
    Group.run(
        () -> {
          comm.send(mine, next, stream);
          comm.recv(others, previous, stream);
          comm.allReduce(reduced, reduced, ReduceOp.SUM, stream);
        });
    expect("recv", new int[] {previous}, others, stream);
    expect("allReduce in a group", new int[] {n * (n - 1) / 2}, reduced, stream);
  }

  private static void children(Communicator comm) {
    int n = comm.size();
    int r = comm.rank();
    try (Communicator half = comm.split(r % 2, -r)) {
      int members = (n + 1 - r % 2) / 2;
      check("split", half.size() == members && sum(half, 1) == members);
      check("order of a split", half.rank() == members - 1 - r / 2);
    }
    if (r == 0) {
      comm.splitNoColor();
    } else {
      comm.split(1, 0).close();
    }
    if (r > 0) {
      try (Communicator rest =
          comm.shrink(Set.of(0), ShrinkMode.FINISH_FIRST, CommunicatorConfig.defaults())) {
        check("shrink", sum(rest, 1) == n - 1);
      }
    }
    check("the parent goes on", sum(comm, 1) == n);
  }

  private static void check(String what, boolean holds) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  /** One rank makes a different call. */
  private void differ(Communicator comm, Stream stream) {
    boolean different = comm.rank() == comm.size() - 1;
    Buffer data = comm.newBuffer(DataType.FLOAT32, 8);
    try {
      switch (argument) {
        case "count" -> {
          Buffer part = data.slice(0, different ? 7 : 8);
          comm.allReduce(part, part, ReduceOp.SUM, stream);
        }
        case "collective" -> {
          if (different) {
            comm.broadcast(data, 0, stream);
          } else {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
          }
        }
        default -> comm.broadcast(data, different ? 1 : 0, stream);
      }
      stream.synchronize();
      // This rank's part was done before the others detected the difference.
      print(comm.rank(), "failed with " + awaitAsyncError(comm));
    } catch (NcclException e) {
      print(comm.rank(), "failed with " + e);
    }
  }

  private static NcclException awaitAsyncError(Communicator comm) {
    while (comm.asyncError().isEmpty()) {
      Thread.onSpinWait();
    }
    return comm.asyncError().get();
  }

  /** Creates the number of children of the argument, and takes part in none of their calls. */
  private void keepChildren(Communicator comm) throws InterruptedException {
    for (int child = Integer.parseInt(argument); child > 0; child--) {
      comm.split(0, comm.rank());
    }
    print(comm.rank(), "is ready");
    Thread.sleep(Duration.ofMinutes(2));
  }

  /** The last rank sends, and closes at once. */
  private static void closeEarly(Communicator comm, Stream stream) {
    int last = comm.size() - 1;
    Buffer data = ints(comm, stream, 7);
    if (comm.rank() == last) {
      comm.send(data, 0, stream);
      stream.synchronize();
    } else if (comm.rank() == 0) {
      try {
        Thread.sleep(500);
      } catch (InterruptedException e) {
        throw new IllegalStateException(e);
      }
      comm.recv(data, last, stream);
      print(0, "received " + read(data, stream)[0]);
      comm.recv(data, last, stream);
      try {
        stream.synchronize();
      } catch (NcclException e) {
        print(0, "failed with " + e);
      }
    }
  }

  /** Reduces until a failure; then all but the rank of the argument continue without the lost. */
  private void loop(String program, Communicator comm, Stream stream) throws Exception {
    Buffer data = comm.newBuffer(DataType.FLOAT32, 1 << 18);
    data.fill((byte) 0, stream);
    boolean different = comm.rank() == Integer.parseInt(argument);
    NcclException failure = null;
    try {
      for (int round = 0; ; round++) {
        if (program.equals("chain")) {
          passOn(data, comm, stream);
        } else {
          comm.allReduce(data, data, ReduceOp.SUM, stream);
        }
        stream.synchronize();
        if (round == 20) {
          print(comm.rank(), "is in the middle");
          if (different) {
            sendInvalidData(program, comm);
          }
        }
      }
    } catch (NcclException e) {
      print(comm.rank(), "failed with " + e);
      failure = e;
    }
    if (!different) {
      try (Communicator rest = Recovery.defaults().recover(comm, failure)) {
        print(comm.rank(), "sum of the rest " + sum(rest, 1 << comm.rank()));
      }
    }
  }

  /** Receives from the previous rank, then sends to the next one. */
  private static void passOn(Buffer data, Communicator comm, Stream stream) {
    int rank = comm.rank();
    if (rank > 0) {
      comm.recv(data, rank - 1, stream);
    }
    if (rank < comm.size() - 1) {
      comm.send(data, rank + 1, stream);
    }
  }

  private static void sendInvalidData(String program, Communicator comm)
      throws IOException, InterruptedException {
    CommunicatorState communicator =
        ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank().communicator();
    ByteBuffer invalid =
        ByteBuffer.wrap(
            "This is no message of anybody's, ever.".getBytes(StandardCharsets.US_ASCII));
    if (program.equals("invalid-data")) {
      for (int peer = 0; peer < comm.size(); peer++) {
        for (TcpSendLink link : communicator.links().sentBy(comm.rank(), RankSets.of(peer))) {
          link.channel().write(invalid.duplicate());
        }
      }
      for (SharedMemoryLink link : communicator.links().sharedMemory().made()) {
        link.memory().asSlice(256).fill((byte) 0x73);
      }
      // The next data that it sends would be valid again.
      Thread.sleep(1000);
    } else if (program.equals("invalid-control")) {
      communicator.remoteProcess(0).send(invalid);
    }
  }

  /** One rank dies while all are idle; then the others call. */
  private void outliveAnIdleRank(Communicator comm) {
    print(comm.rank(), "is idle");
    awaitAsyncError(comm);
    Set<Integer> dead = Set.of(Integer.valueOf(argument));
    failAtOnce(comm, "split", () -> comm.split(0, 0, config).close());
    failAtOnce(comm, "grow", () -> comm.grow(size + 1, config).close());
    continueWithout(comm, dead);
  }

  /**
   * One rank dies while it waits for the last one, which is slow to connect. The last one detects
   * that and gives up; the other ranks that wait for it have to be notified.
   */
  private void outliveAConnectingRank(Communicator comm) {
    if (comm.rank() < size - 1) {
      failAtOnce(comm, "split", () -> comm.split(0, comm.rank(), config).close());
    } else {
      ProcessEndpoint endpoint = ProcessEndpoint.ofThisProcess();
      HostedRank self = ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank();
      Bootstrap bootstrap =
          self.communicator().bootstraps().bootstrap(self.next(BootstrapKey.SPLIT, new BitSet()));
      bootstrap.arrive(
          new Bootstrap.MembershipRequest(self.rank(), 0, self.rank(), endpoint.address()));
      Deadline deadline = Deadline.after(config.timeout().orElseThrow());
      Participant participant =
          new Participant(
              bootstrap,
              self.rank(),
              self.toString(),
              deadline,
              () -> self.abortedException(bootstrap.function()));
      bootstrap.awaitAssignment(participant);
      print(self.rank(), "has the rank map");
      awaitAsyncError(comm);
      failAtOnce(
          comm,
          "split",
          () ->
              CommunicatorState.join(
                  participant, endpoint, ReferenceBackend.of(backend).options().forRanks()));
    }
    continueWithout(comm, Set.of(Integer.valueOf(argument)));
  }

  private void failAtOnce(Communicator comm, String call, Runnable fails) {
    long start = System.nanoTime();
    try {
      fails.run();
      print(comm.rank(), call + " succeeded");
    } catch (NcclException e) {
      long millis = (System.nanoTime() - start) / 1_000_000;
      boolean atOnce = millis < config.timeout().orElseThrow().toMillis() / 4;
      print(
          comm.rank(),
          call + " failed " + (atOnce ? "at once" : "after " + millis + " ms") + ": " + e);
    }
  }

  private void continueWithout(Communicator comm, Set<Integer> dead) {
    try (Communicator rest = comm.shrink(dead, ShrinkMode.ABORT_FIRST, config)) {
      print(comm.rank(), "sum of the rest " + sum(rest, 1 << comm.rank()));
    }
  }

  private void grow(Communicator comm) {
    int after = Integer.parseInt(argument);
    Communicator grown;
    if (comm.rank() == comm.size() - 1) {
      UniqueId growId = comm.newGrowId();
      print(comm.rank(), "id " + growId.toHex());
      grown = comm.grow(after, growId, config);
    } else {
      grown = comm.grow(after, config);
    }
    print(comm.rank(), "sum of all " + sum(grown, 1 << grown.rank()));
    grown.close();
    print(comm.rank(), "sum of the parent " + sum(comm, 1));
  }

  private void joinByGrow(int rank) {
    try (Communicator grown = backend.join(id, size, rank, config)) {
      print(rank, "sum of all " + sum(grown, 1 << grown.rank()));
    }
  }
}
