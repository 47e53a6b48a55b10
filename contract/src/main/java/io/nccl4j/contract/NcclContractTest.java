package io.nccl4j.contract;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.fixtures.libraries.OnGpu;
import java.time.Duration;

/**
 * The contract on NVIDIA's NCCL and GPUs, with one rank per device. {@code -Dtest.ranks=} sets
 * another number of ranks if NCCL accepts several per device ({@code
 * NCCL_MULTI_RANK_GPU_ENABLE=1}).
 */
@OnGpu
class NcclContractTest extends ContractSuite {
  @Override
  protected BackendUnderTest underTest() {
    return Gpus.INSTANCE;
  }

  private static final class Gpus implements BackendUnderTest {
    static final Gpus INSTANCE = new Gpus();

    private final int maxRanks;
    private final boolean reducesFloat8;

    Gpus() {
      try (Backend backend = Backend.nccl()) {
        maxRanks = Integer.getInteger("test.ranks", backend.devices().size());
        reducesFloat8 = reducesFloat8(backend);
      }
    }

    private boolean reducesFloat8(Backend backend) {
      var single = backend.newCommunicator(backend.newUniqueId(), 1, 0, config());
      try (var stream = single.newStream();
          Buffer one = single.newBuffer(DataType.FLOAT8E4M3, 1)) {
        single.allReduce(one, one, ReduceOp.SUM, stream);
        stream.synchronize();
        return true;
      } catch (IllegalArgumentException unsupported) {
        return false;
      } finally {
        single.close();
      }
    }

    @Override
    public Backend open(int ranks) {
      return Backend.nccl();
    }

    @Override
    public int maxRanks() {
      return maxRanks;
    }

    @Override
    public boolean reducesFloat8() {
      return reducesFloat8;
    }

    @Override
    public CommunicatorConfig config() {
      return CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(60));
    }
  }
}
