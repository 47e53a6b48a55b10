package io.nccl4j.contract;

import io.nccl4j.Backend;
import io.nccl4j.fixtures.libraries.OnOlderStandIn;
import io.nccl4j.fixtures.libraries.Releases;
import java.util.List;
import org.junit.jupiter.api.Nested;

/**
 * The part of the contract that every supported NCCL release must satisfy (moving data, reducing
 * it, and splitting), run on the stand-in built as an older NCCL.
 */
@OnOlderStandIn
class OlderReleaseContractTest {
  private static final String FIRST_WITH_FLOAT8 = "2.24";

  /** Three devices, so that one rank is neither first nor last. */
  private static final BackendUnderTest UNDER_TEST =
      new BackendUnderTest() {
        @Override
        public Backend open(int ranks) {
          return Backend.nccl();
        }

        @Override
        public int maxRanks() {
          return 3;
        }

        @Override
        public List<Integer> rankCounts(int... requested) {
          return List.of(maxRanks());
        }

        @Override
        public boolean movesFloat8() {
          return Releases.compare(System.getProperty("test.nccl.release"), FIRST_WITH_FLOAT8) >= 0;
        }

        @Override
        public boolean reducesFloat8() {
          return movesFloat8();
        }
      };

  @Nested
  class Collectives extends CollectivesContract {
    @Override
    BackendUnderTest underTest() {
      return UNDER_TEST;
    }
  }

  @Nested
  class Groups extends GroupsContract {
    @Override
    BackendUnderTest underTest() {
      return UNDER_TEST;
    }
  }

  @Nested
  class PointToPoint extends PointToPointContract {
    @Override
    BackendUnderTest underTest() {
      return UNDER_TEST;
    }
  }

  @Nested
  class Split extends SplitContract {
    @Override
    BackendUnderTest underTest() {
      return UNDER_TEST;
    }
  }
}
