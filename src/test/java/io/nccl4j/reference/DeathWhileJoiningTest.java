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
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * A rank that dies at each point of its way into a new communicator: all others get an error that
 * names it at once, and those that have a communicator left shrink it without the dead rank.
 */
@Timeout(60)
class DeathWhileJoiningTest {
  private static final int RANKS = 4;

  /** The rank that makes the id of a grow; the rank that joins is the last one. */
  private static final int ID_MAKER = 1;

  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));

  /**
   * What a survivor waits at most; far less than the time-out, far more than a busy machine needs.
   */
  private static final Duration AT_ONCE = Duration.ofSeconds(5);

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
          // Nobody knows of a rank that has not arrived by an id.
          boolean unknown = call == Call.CONNECT || (call == Call.GROW && victim == RANKS - 1);
          if (!unknown || point != Point.BEFORE_ARRIVING) {
            // The links of data; those of control are the same.
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
  void everySurvivorGetsAnErrorAtOnceAndGoesOn(Call call, int victim, Point point, Transport links)
      throws Exception {
    Job job = new Job(call, links);
    job.prepare();
    CountDownLatch dead = new CountDownLatch(1);
    long[] died = new long[1];
    FutureTask<Void> death =
        start(
            () -> {
              job.play(victim, point);
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
                    // It would find nobody by the id any more.
                    return null;
                  }
                }
                NcclException told =
                    assertThrows(NcclRemoteException.class, () -> job.call(rank).close());
                long nanos = System.nanoTime() - died[0];
                assertTrue(job.names(victim, told.getMessage()), told::toString);
                assertTrue(nanos < AT_ONCE.toNanos(), () -> "it took " + nanos + " ns: " + told);
                job.goOnWithout(victim, rank);
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
  void aRankThatGivesUpAfterTheMapReleasesTheOthers() throws Exception {
    Job job = new Job(Call.SPLIT, Transport.AUTO);
    job.prepare();
    List<FutureTask<Void>> others = new ArrayList<>();
    for (int rank = 0; rank < RANKS - 1; rank++) {
      int self = rank;
      others.add(
          start(
              () -> {
                NcclRemoteException told =
                    assertThrows(NcclRemoteException.class, () -> job.call(self).close());
                assertTrue(
                    told.getMessage().contains("rank 3 has changed its mind"), told::toString);
                return null;
              }));
    }
    Bootstrap bootstrap = job.arrive(RANKS - 1);
    job.awaitSeat(bootstrap, RANKS - 1);
    bootstrap.giveUp("rank 3 has changed its mind", null);
    for (FutureTask<Void> other : others) {
      other.get(AT_ONCE.toSeconds(), TimeUnit.SECONDS);
    }
    job.abort();
  }

  @Test
  void anAbortOfAWaitingRankIsNamedToTheOthers() throws Exception {
    Job job = new Job(Call.SPLIT, Transport.AUTO);
    job.prepare();
    Bootstrap bootstrap = job.arrive(2);
    job.parents[2].abort();
    assertThrows(CommunicatorAbortedException.class, () -> job.awaitSeat(bootstrap, 2));
    List<FutureTask<Void>> others = new ArrayList<>();
    for (int rank : new int[] {0, 1, 3}) {
      others.add(
          start(
              () -> {
                NcclRemoteException told =
                    assertThrows(NcclRemoteException.class, () -> job.call(rank).close());
                assertTrue(
                    told.getMessage().contains("rank 2 aborted its communicator"), told::toString);
                return null;
              }));
    }
    for (FutureTask<Void> other : others) {
      other.get(AT_ONCE.toSeconds(), TimeUnit.SECONDS);
    }
    job.abort();
  }

  @Test
  void giveUpAfterTheEnd_opensNoMeeting() throws Exception {
    Job job = new Job(Call.SPLIT, Transport.AUTO);
    job.prepare();
    job.callAll();
    CommunicatorState last = job.world(RANKS - 1);
    BootstrapKey over = new BootstrapKey(BootstrapKey.SPLIT, new BitSet(), 0);
    last.remoteProcess(0).coordinator(over).giveUp(RANKS, "rank 3 has changed its mind", null);
    // Once this is done, what was sent before has been read.
    job.callAll();
    for (int rank = 0; rank < RANKS; rank++) {
      assertEquals(0, job.world(rank).bootstraps().unfinished(), "in the process of rank " + rank);
    }
    job.abort();
  }

  private static <T> FutureTask<T> start(Callable<T> program) {
    FutureTask<T> task = new FutureTask<>(program);
    Thread.ofPlatform().daemon().start(task);
    return task;
  }

  /** Ranks on sites of their own, which have a communicator unless they are to make it. */
  private static final class Job {
    private final Call call;
    private final List<ProcessEndpoint> endpoints =
        IntStream.range(0, RANKS).mapToObj(r -> new ProcessEndpoint()).toList();
    private final ReferenceOptions options;
    private final Backend backend;
    private final Communicator[] parents = new Communicator[RANKS];
    private final int before;
    // By which all ranks connect, or the last one joins.
    private UniqueId id;

    Job(Call call, Transport links) {
      this.call = call;
      this.options = ReferenceOptions.defaults().withTransport(links);
      this.backend = ReferenceBackend.open(RANKS, options, () -> endpoints);
      this.before =
          switch (call) {
            case CONNECT -> 0;
            case GROW -> RANKS - 1;
            case SPLIT, SHRINK -> RANKS;
          };
    }

    void prepare() throws Exception {
      UniqueId first = backend.newUniqueId();
      List<FutureTask<Communicator>> made = new ArrayList<>();
      for (int rank = 0; rank < before; rank++) {
        int self = rank;
        made.add(start(() -> backend.newCommunicator(first, before, self, CONFIG)));
      }
      for (int rank = 0; rank < before; rank++) {
        parents[rank] = made.get(rank).get(30, TimeUnit.SECONDS);
      }
      id = call == Call.GROW ? parents[ID_MAKER].newGrowId() : first;
    }

    /** Returns the ranks that take part. */
    Set<Integer> callers() {
      int end = call == Call.SHRINK ? RANKS - 1 : RANKS;
      return new TreeSet<>(IntStream.range(0, end).boxed().toList());
    }

    /**
     * Returns the rank that calls when the victim is dead, where the victim does not wait for it.
     */
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

    /** Makes the call on all ranks, and closes what they get. */
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
      for (FutureTask<Void> made : calls) {
        made.get(30, TimeUnit.SECONDS);
      }
    }

    CommunicatorState world(int rank) {
      return ((ReferenceCommunicator) Contract.get().driver(parents[rank]))
          .hostedRank()
          .communicator();
    }

    /** Returns whether a message names a rank, or its process where no more can be known of it. */
    boolean names(int victim, String message) {
      boolean maker =
          victim == (call == Call.GROW ? ID_MAKER : 0)
              && (call == Call.GROW || call == Call.CONNECT);
      return message.contains("rank " + victim + " ")
          || (maker && message.contains(", which created the id, "));
    }

    /** Shrinks what is left of the communicator there was before, and uses it. */
    void goOnWithout(int victim, int rank) {
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

    /** Does what a rank's call does until its process dies. */
    void play(int rank, Point until) throws InterruptedException {
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
      Bootstrap.RankAssignment assignment = awaitSeat(bootstrap, rank);
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
      Deadline deadline = Deadline.after(CONFIG.timeout());
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

    Bootstrap.RankAssignment awaitSeat(Bootstrap meeting, int rank) {
      return meeting.awaitAssignment(participant(meeting, rank));
    }

    private Participant participant(Bootstrap meeting, int rank) {
      HostedRank self =
          rank < before
              ? ((ReferenceCommunicator) Contract.get().driver(parents[rank])).hostedRank()
              : null;
      Deadline deadline = Deadline.after(CONFIG.timeout());
      return new Participant(
          meeting,
          rank,
          "rank " + rank,
          deadline,
          () -> self == null ? null : self.abortion(meeting.function()));
    }

    /** Connects with one other process, and with no more. */
    private void connectOne(Bootstrap meeting, Bootstrap.RankAssignment seat)
        throws InterruptedException {
      ProcessEndpoint endpoint = endpoints.get(seat.rank());
      CommunicatorState communicator =
          new CommunicatorState(endpoint, seat.rankMap(), options.forRanks());
      endpoint.retain(seat.rankMap().secret(), meeting.function());
      endpoint.register(communicator);
      if (seat.rank() > 0) {
        communicator.remoteProcess(0).connect(participant(meeting, seat.rank()));
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
