package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapFailure;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.BootstrapTarget;
import io.nccl4j.internal.reference.bootstrap.InitBootstrap;
import io.nccl4j.internal.reference.bootstrap.Participant;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.Contract;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * A rank dies at each stage of joining a new communicator: all others promptly get an error that
 * names it, and those with a parent communicator shrink it without the dead rank.
 */
@Timeout(60)
@Tag("slow")
class DeathWhileJoiningTest {
  private static final int RANKS = 4;

  /** The rank that creates the id of a grow; the last rank joins by it. */
  private static final int ID_MAKER = 1;

  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(40));

  /** The longest wait of a survivor: far below the timeout, far above what a busy machine needs. */
  private static final Duration AT_ONCE = Duration.ofSeconds(20);

  enum Call {
    CONNECT,
    SPLIT,
    /** Leaves out the last rank, which is alive. */
    SHRINK,
    GROW
  }

  enum Point {
    BEFORE_ARRIVING,
    AFTER_ARRIVING,
    AFTER_THE_MAP,
    WHILE_LINKS_CONNECT,
    BEFORE_CONFIRMING
  }

  static List<Arguments> deaths() {
    List<Arguments> deaths = new ArrayList<>();
    for (Call call : Call.values()) {
      for (int victim = 0; victim < RANKS; victim++) {
        if (call == Call.SHRINK && victim == RANKS - 1) {
          continue;
        }
        for (Point point : Point.values()) {
          // A rank that joins by an id is unknown until it arrives.
          boolean unknown = call == Call.CONNECT || (call == Call.GROW && victim == RANKS - 1);
          if (!unknown || point != Point.BEFORE_ARRIVING) {
            // The transport of data links; control connections are the same for both.
            Transport links = deaths.size() % 2 == 0 ? Transport.AUTO : Transport.TCP;
            deaths.add(Arguments.of(call, victim, point, links));
          }
        }
      }
    }
    return deaths;
  }

  @ParameterizedTest(name = "{0}, rank {1} dies {2}, {3}")
  @MethodSource("deaths")
  void survivorsGetAnErrorAtOnceAndContinue(Call call, int victim, Point point, Transport links)
      throws Exception {
    Job job = new Job(call, links);
    job.prepare();
    CountDownLatch dead = new CountDownLatch(1);
    long[] died = new long[1];
    FutureTask<Void> death =
        start(
            () -> {
              job.runUntil(victim, point);
              died[0] = System.nanoTime();
              job.endpoints.get(victim).die();
              dead.countDown();
              return null;
            });
    List<FutureTask<Void>> survivors = new ArrayList<>();
    for (int rank : job.callers()) {
      if (rank == victim) {
        continue;
      }
      boolean late = point.compareTo(Point.AFTER_ARRIVING) <= 0 && rank == job.lateRank(victim);
      survivors.add(
          start(
              () -> {
                if (late) {
                  dead.await();
                  if (call == Call.CONNECT) {
                    // The id leads to no bootstrap any more.
                    return null;
                  }
                }
                NcclException thrown =
                    assertThrows(NcclRemoteException.class, () -> job.call(rank).close());
                long nanos = System.nanoTime() - died[0];
                assertTrue(job.names(victim, thrown.getMessage()), thrown::toString);
                assertTrue(nanos < AT_ONCE.toNanos(), () -> "it took " + nanos + " ns: " + thrown);
                job.continueWithout(victim, rank);
                return null;
              }));
    }
    death.get(30, TimeUnit.SECONDS);
    for (FutureTask<Void> survivor : survivors) {
      survivor.get(30, TimeUnit.SECONDS);
    }
    job.abort();
  }

  @Test
  void rankThatGivesUpAfterTheMapReleasesTheOthers() throws Exception {
    Job job = new Job(Call.SPLIT, Transport.AUTO);
    job.prepare();
    List<FutureTask<Void>> others = new ArrayList<>();
    for (int rank = 0; rank < RANKS - 1; rank++) {
      int self = rank;
      others.add(
          start(
              () -> {
                NcclRemoteException thrown =
                    assertThrows(NcclRemoteException.class, () -> job.call(self).close());
                assertTrue(
                    thrown.getMessage().contains("rank 3 gave up in a test"), thrown::toString);
                return null;
              }));
    }
    Bootstrap bootstrap = job.arrive(RANKS - 1);
    job.awaitAssignment(bootstrap, RANKS - 1);
    bootstrap.giveUp(BootstrapFailure.of("rank 3 gave up in a test"));
    for (FutureTask<Void> other : others) {
      other.get(AT_ONCE.toSeconds(), TimeUnit.SECONDS);
    }
    job.abort();
  }

  @Test
  void abortOfAWaitingRankIsReportedToTheOthers() throws Exception {
    Job job = new Job(Call.SPLIT, Transport.AUTO);
    job.prepare();
    Bootstrap bootstrap = job.arrive(2);
    job.parents[2].abort();
    assertThrows(CommunicatorAbortedException.class, () -> job.awaitAssignment(bootstrap, 2));
    List<FutureTask<Void>> others = new ArrayList<>();
    for (int rank : new int[] {0, 1, 3}) {
      others.add(
          start(
              () -> {
                NcclRemoteException thrown =
                    assertThrows(NcclRemoteException.class, () -> job.call(rank).close());
                assertTrue(
                    thrown.getMessage().contains("rank 2 aborted its communicator"),
                    thrown::toString);
                return null;
              }));
    }
    for (FutureTask<Void> other : others) {
      other.get(AT_ONCE.toSeconds(), TimeUnit.SECONDS);
    }
    job.abort();
  }

  @Test
  void giveUpAfterTheEndCreatesNoBootstrap() throws Exception {
    Job job = new Job(Call.SPLIT, Transport.AUTO);
    job.prepare();
    job.callAll();
    CommunicatorState last = job.state(RANKS - 1);
    BootstrapKey finished = new BootstrapKey(BootstrapKey.SPLIT, new BitSet(), 0);
    last.remoteProcess(0)
        .coordinator(finished)
        .giveUp(RANKS, BootstrapFailure.of("rank 3 gave up in a test"));
    // Once this is done, all earlier messages have been read.
    job.callAll();
    for (int rank = 0; rank < RANKS; rank++) {
      assertEquals(0, job.state(rank).bootstraps().unfinished(), "in the process of rank " + rank);
    }
    job.abort();
  }

  private static <T> FutureTask<T> start(Callable<T> program) {
    FutureTask<T> task = new FutureTask<>(program);
    Thread.ofPlatform().daemon().start(task);
    return task;
  }

  /** Ranks with an endpoint each, and their parent communicator unless the call is a connect. */
  private static final class Job {
    private final Call call;
    private final List<ProcessEndpoint> endpoints =
        IntStream.range(0, RANKS).mapToObj(r -> new ProcessEndpoint()).toList();
    private final ReferenceOptions options;
    private final Backend backend;
    private final Communicator[] parents = new Communicator[RANKS];
    private final int before;
    // The id by which all ranks connect, or by which the last one joins.
    private UniqueId id;

    Job(Call call, Transport links) {
      this.call = call;
      this.options = ReferenceOptions.defaults().withTransport(links);
      this.backend = ReferenceBackend.open(RANKS, options, endpoints);
      this.before =
          switch (call) {
            case CONNECT -> 0;
            case GROW -> RANKS - 1;
            case SPLIT, SHRINK -> RANKS;
          };
    }

    void prepare() throws Exception {
      UniqueId first = backend.newUniqueId();
      List<FutureTask<Communicator>> created = new ArrayList<>();
      for (int rank = 0; rank < before; rank++) {
        int self = rank;
        created.add(start(() -> backend.newCommunicator(first, before, self, CONFIG)));
      }
      for (int rank = 0; rank < before; rank++) {
        parents[rank] = created.get(rank).get(30, TimeUnit.SECONDS);
      }
      id = call == Call.GROW ? parents[ID_MAKER].newGrowId() : first;
    }

    /** Returns the ranks that take part. */
    Set<Integer> callers() {
      int end = call == Call.SHRINK ? RANKS - 1 : RANKS;
      return new TreeSet<>(IntStream.range(0, end).boxed().toList());
    }

    /** Returns the rank that calls after the death, if the victim does not wait for it. */
    int lateRank(int victim) {
      return callers().stream().filter(rank -> rank != victim).mapToInt(r -> r).max().orElseThrow();
    }

    Communicator call(int rank) {
      return switch (call) {
        case CONNECT -> backend.newCommunicator(id, RANKS, rank, CONFIG);
        case SPLIT -> parents[rank].split(0, rank);
        case SHRINK -> parents[rank].shrink(Set.of(RANKS - 1), ShrinkMode.ABORT_FIRST, CONFIG);
        case GROW ->
            rank == before
                ? backend.join(id, RANKS, rank, CONFIG)
                : rank == ID_MAKER
                    ? parents[rank].grow(RANKS, id, CONFIG)
                    : parents[rank].grow(RANKS, CONFIG);
      };
    }

    /** Calls on all ranks, and closes the new communicators. */
    void callAll() throws Exception {
      List<FutureTask<Void>> calls = new ArrayList<>();
      for (int rank : callers()) {
        calls.add(
            start(
                () -> {
                  call(rank).close();
                  return null;
                }));
      }
      for (FutureTask<Void> created : calls) {
        created.get(30, TimeUnit.SECONDS);
      }
    }

    CommunicatorState state(int rank) {
      return ((ReferenceCommunicator) Contract.get().driver(parents[rank]))
          .hostedRank()
          .communicator();
    }

    /** Returns whether a message names a rank, or its process if only that can be known. */
    boolean names(int victim, String message) {
      boolean maker =
          victim == (call == Call.GROW ? ID_MAKER : 0)
              && (call == Call.GROW || call == Call.CONNECT);
      return message.contains("rank " + victim + " ")
          || (maker && message.contains(", which created the id, "));
    }

    /** Shrinks the parent communicator, and uses it. */
    void continueWithout(int victim, int rank) {
      if (rank >= before) {
        return;
      }
      Set<Integer> excluded = new TreeSet<>(Set.of(victim));
      if (call == Call.SHRINK) {
        excluded.add(RANKS - 1);
      }
      if (victim >= before) {
        assertEquals((1 << before) - 1, sum(parents[rank], 1 << rank));
        return;
      }
      try (Communicator rest = parents[rank].shrink(excluded, ShrinkMode.ABORT_FIRST, CONFIG)) {
        int all = (1 << before) - 1;
        int gone = excluded.stream().mapToInt(r -> 1 << r).sum();
        assertEquals(all & ~gone, sum(rest, 1 << rank));
      }
    }

    private static int sum(Communicator comm, int mine) {
      try (Stream stream = comm.newStream();
          Buffer value = comm.newBuffer(DataType.INT32, 1)) {
        DataType.INT32.setLong(value.segment(), 0, mine);
        comm.allReduce(value, value, ReduceOp.SUM, stream);
        stream.synchronize();
        return (int) DataType.INT32.getLong(value.segment(), 0);
      }
    }

    /** Runs the steps of a rank's call until the point where its process dies. */
    void runUntil(int rank, Point until) throws InterruptedException {
      if (until == Point.BEFORE_ARRIVING) {
        return;
      }
      Bootstrap bootstrap = arrive(rank);
      if (until == Point.AFTER_ARRIVING) {
        while (bootstrap.awaited().cardinality() > 1) {
          Thread.sleep(1);
        }
        return;
      }
      Bootstrap.RankAssignment assignment = awaitAssignment(bootstrap, rank);
      switch (until) {
        case WHILE_LINKS_CONNECT -> connectOne(bootstrap, assignment);
        case BEFORE_CONFIRMING ->
            CommunicatorState.form(
                assignment.rankMap(),
                endpoints.get(rank),
                options.forRanks(),
                participant(bootstrap, rank));
        default -> {}
      }
    }

    Bootstrap arrive(int rank) {
      Deadline deadline = Deadline.after(CONFIG.timeout().orElseThrow());
      BootstrapTarget.JoinRequest request =
          new BootstrapTarget.JoinRequest(RANKS, rank, options.toString(), null);
      if (call == Call.CONNECT || rank >= before) {
        String function = call == Call.CONNECT ? InitBootstrap.CONNECT : BootstrapKey.GROW;
        return InitBootstrap.of(endpoints.get(rank), id, function, request)
            .admit(request, deadline);
      }
      HostedRank self = ((ReferenceCommunicator) Contract.get().driver(parents[rank])).hostedRank();
      BitSet excluded = new BitSet();
      excluded.set(RANKS - 1, call == Call.SHRINK ? RANKS : RANKS - 1);
      Bootstrap bootstrap =
          switch (call) {
            case SPLIT ->
                self.communicator().bootstraps().bootstrap(self.next(BootstrapKey.SPLIT, excluded));
            case SHRINK ->
                self.communicator()
                    .bootstraps()
                    .bootstrap(self.next(BootstrapKey.SHRINK, excluded));
            default ->
                self.communicator()
                    .bootstraps()
                    .growBootstrap(self.next(BootstrapKey.GROW, excluded))
                    .bootstrap(RANKS);
          };
      bootstrap.arrive(
          new Bootstrap.MembershipRequest(rank, 0, rank, endpoints.get(rank).address()));
      return bootstrap;
    }

    Bootstrap.RankAssignment awaitAssignment(Bootstrap bootstrap, int rank) {
      return bootstrap.awaitAssignment(participant(bootstrap, rank));
    }

    private Participant participant(Bootstrap bootstrap, int rank) {
      HostedRank self =
          rank < before
              ? ((ReferenceCommunicator) Contract.get().driver(parents[rank])).hostedRank()
              : null;
      Deadline deadline = Deadline.after(CONFIG.timeout().orElseThrow());
      return new Participant(
          bootstrap,
          rank,
          "rank " + rank,
          deadline,
          () -> self == null ? null : self.abortedException(bootstrap.function()));
    }

    /** Connects with one other process only. */
    private void connectOne(Bootstrap bootstrap, Bootstrap.RankAssignment assignment)
        throws InterruptedException {
      ProcessEndpoint endpoint = endpoints.get(assignment.rank());
      CommunicatorState communicator =
          new CommunicatorState(endpoint, assignment.rankMap(), options.forRanks());
      endpoint.retain(assignment.rankMap().secret(), bootstrap.function());
      endpoint.register(communicator);
      if (assignment.rank() > 0) {
        communicator.remoteProcess(0).connect(participant(bootstrap, assignment.rank()));
      } else {
        while (!communicator.remoteProcess(1).connected()) {
          Thread.sleep(1);
        }
      }
    }

    void abort() {
      for (int rank = 0; rank < before; rank++) {
        parents[rank].abort();
      }
    }
  }
}
