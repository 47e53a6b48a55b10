package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Group;
import io.nccl4j.UniqueId;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import java.util.function.Supplier;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests which device a launched rank uses. */
class LaunchDeviceTest {
  /** A rendezvous with a known id. */
  private record Known(RankInfo rankInfo, UniqueId id) implements Rendezvous {
    @Override
    public int rank() {
      return rankInfo.rank();
    }

    @Override
    public int size() {
      return rankInfo.size();
    }

    @Override
    public OptionalInt localRank() {
      return rankInfo.localRank();
    }

    @Override
    public UniqueId exchange(Supplier<UniqueId> maker) {
      return id;
    }

    @Override
    public void close() {}
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          0 |  | 3 | 3
          3 | 1 |  | 1
          2 | 5 |  | 1
          3 |  |  | 1
          """)
  void localRankSelectsTheDeviceUnlessConfigured(
      int rank, Integer localRank, Integer named, int device) {
    RankInfo rankInfo = RankInfo.of(rank, 6).withTimeout(Duration.ofSeconds(10));
    RankInfo placed = localRank == null ? rankInfo : rankInfo.withLocalRank(localRank);
    CommunicatorConfig config =
        named == null
            ? CommunicatorConfig.defaults()
            : CommunicatorConfig.defaults().withDevice(named);
    try (Backend backend = Backend.reference(named == null ? 2 : 4)) {
      List<Communicator> all = new ArrayList<>();
      UniqueId id = backend.newUniqueId();
      Group.run(
          () -> {
            for (int r = 0; r < 6; r++) {
              all.add(
                  r == rank
                      ? new Known(placed, id).newCommunicator(backend, config)
                      : backend.newCommunicator(id, 6, r, CommunicatorConfig.defaults()));
            }
          });
      assertEquals(device, all.get(rank).device());
      all.forEach(Communicator::abort);
    }
  }
}
