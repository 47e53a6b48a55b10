package io.nccl4j.contract;

import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * The whole contract of a backend, as nested JUnit test classes. Subclass it once for each backend;
 * the name of the subclass must end with {@code Test}.
 */
@ExtendWith({ProcessRank.class, SharedRanks.class})
public abstract class ContractSuite {
  /** Returns the backend to test, either one instance for all tests or a new one for each. */
  protected abstract BackendUnderTest underTest();

  @Nested
  class Arguments extends ArgumentsContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class ArrayCopies extends ArrayCopiesContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Backends extends BackendContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Barriers extends BarrierContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Buffers extends BuffersContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class ByteArrays extends ByteArraysContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Collectives extends CollectivesContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class CountsPerRank extends CountsPerRankContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class FlightRecorders extends FlightRecorderContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class GradientReducers extends GradientReducerContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Graphs extends GraphsContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Groups extends GroupsContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class GroupMemory extends GroupMemoryContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Grow extends GrowContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Lifecycle extends LifecycleContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Recordings extends RecordingsContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class ReducerArguments extends ReducerArgumentsContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class ReducerOrder extends ReducerOrderContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class MemoryVisibility extends MemoryVisibilityContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class PendingUse extends PendingUseContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class PointToPoint extends PointToPointContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class PreMulSum extends PreMulSumContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class RunRanks extends RunRanksContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class ShardedReducers extends ShardedReducerContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Shrink extends ShrinkContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Split extends SplitContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Streams extends StreamsContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }

  @Nested
  class Training extends TrainingContract {
    @Override
    BackendUnderTest underTest() {
      return ContractSuite.this.underTest();
    }
  }
}
