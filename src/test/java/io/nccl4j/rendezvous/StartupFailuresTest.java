package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.RankBackend;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.function.Supplier;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** A failure while the ranks of a job start reaches every rank, with its reason, at once. */
class StartupFailuresTest {
  /** Two seconds, and some for a busy machine; the ranks' timeout is a minute. */
  private static final Duration AT_ONCE = Duration.ofSeconds(5);

  private static final String SECRETS_DIFFER = " the secret";

  /** A process that is started as a rank. */
  record Started(int rank, int size, Secret secret, RankBackend backend, Supplier<UniqueId> part) {
    private static Started of(int rank, int size) {
      return new Started(
          rank,
          size,
          MeetingPlace.SECRET,
          RankBackend.NCCL,
          () -> rank == 0 ? RankThreads.newId() : null);
    }

    private Started failing(String reason) {
      return new Started(
          rank,
          size,
          secret,
          backend,
          () -> {
            throw new IllegalStateException(reason);
          });
    }

    private Started with(Secret other) {
      return new Started(rank, size, other, backend, part);
    }

    private Started with(RankBackend other) {
      return new Started(rank, size, secret, other, part);
    }
  }

  /** The name of a failure, the ranks, and what every rank says. */
  record Failure(String name, String reason, List<Started> ranks) {
    private static Failure of(String name, String reason, Started... ranks) {
      return new Failure(name, reason, List.of(ranks));
    }

    @Override
    public String toString() {
      return name;
    }
  }

  private static List<Failure> failures() {
    Started zero = Started.of(0, 3);
    Started one = Started.of(1, 3);
    Started two = Started.of(2, 3);
    String noInterface = "NCCL4J_SOCKET_INTERFACE is x, which is no interface";
    return List.of(
        Failure.of("rank 0 has no id", noInterface, zero.failing(noInterface), one, two),
        Failure.of("rank 1 has failed before", "no device", zero, one.failing("no device"), two),
        Failure.of("rank 1 is started twice", "two processes take part as rank 1", zero, one, one),
        Failure.of(
            "a rank has another world size",
            "rank 2 has world size 4, rank 0 has 3",
            zero,
            one,
            Started.of(2, 4)),
        Failure.of(
            "rank 0 has a smaller world size",
            " has world size 4, rank 0 has 2",
            Started.of(0, 2),
            Started.of(1, 4),
            Started.of(2, 4),
            Started.of(3, 4)),
        Failure.of(
            "a rank has another backend",
            "rank 2 uses the reference backend and rank 0 NCCL;",
            zero,
            one,
            two.with(RankBackend.REFERENCE)),
        Failure.of(
            "a rank has another secret",
            SECRETS_DIFFER,
            zero,
            one,
            two.with(Secret.of("incorrect horse battery"))));
  }

  /** Files are protected by their permissions, not by the secret. */
  private static List<MeetingPlace.Kind> places(Failure failure) {
    return failure.reason.equals(SECRETS_DIFFER)
        ? List.of(MeetingPlace.Kind.TCP, MeetingPlace.Kind.TORCH)
        : List.of(MeetingPlace.Kind.values());
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("failures")
  void startupFailureReachesEveryRankAtOnce(Failure failure) throws Exception {
    List<MeetingPlace> places = new ArrayList<>();
    List<FutureTask<UniqueId>> ranks = new ArrayList<>();
    long start = System.nanoTime();
    try {
      for (MeetingPlace.Kind kind : places(failure)) {
        MeetingPlace place = new MeetingPlace(kind);
        places.add(place);
        for (Started each : failure.ranks) {
          RankInfo rankInfo = RankInfo.of(each.rank, each.size).withTimeout(MeetingPlace.LONG);
          RankRendezvous rendezvous = place.rank(each.secret, rankInfo);
          ranks.add(RankThreads.start(() -> rendezvous.exchange(each.backend, each.part)));
        }
      }
      for (FutureTask<UniqueId> rank : ranks) {
        RuntimeException thrown = RankThreads.failure(RuntimeException.class, rank);
        assertTrue(thrown.getMessage().contains(failure.reason), thrown.toString());
      }
    } finally {
      for (MeetingPlace place : places) {
        place.close();
      }
    }
    Duration took = Duration.ofNanos(System.nanoTime() - start);
    assertTrue(took.compareTo(AT_ONCE) < 0, () -> "only after " + took);
  }

  @ParameterizedTest
  @EnumSource
  void rankThatArrivesLateHearsOfTheFailure(MeetingPlace.Kind kind) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      RankRendezvous zero = place.rank(0, 2);
      FutureTask<UniqueId> failing =
          RankThreads.start(
              () ->
                  zero.exchange(
                      () -> {
                        throw new IllegalStateException("no interface");
                      }));
      Thread.sleep(300);
      RankRendezvous one = place.rank(1, 2);
      FutureTask<UniqueId> late = RankThreads.start(() -> one.exchange(RankThreads::newId));
      RendezvousException thrown = RankThreads.failure(RendezvousException.class, late);
      assertTrue(thrown.getMessage().contains("no interface"), thrown.getMessage());
      RankThreads.failure(IllegalStateException.class, failing);
    }
  }
}
