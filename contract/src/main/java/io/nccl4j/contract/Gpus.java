package io.nccl4j.contract;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.time.Duration;

/**
 * The devices of this process's NCCL, with one rank each. {@code -Dtest.ranks=} sets another number
 * of ranks.
 */
class Gpus implements BackendUnderTest {
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

  /**
   * {@inheritDoc}
   *
   * <p>NCCL 2.30.7 refuses averages and pre-multiplied sums of float8 in a communicator of one rank
   * (ncclInvalidArgument): {@code ncclLaunchOneRank} selects their kernels only where {@code
   * __CUDA_ARCH__ >= 900}, which is not defined in host code.
   */
  @Override
  public boolean scales(DataType type, int ranks) {
    return reduces(type) && !(type.float8() && ranks == 1);
  }

  @Override
  public boolean sharesRanks() {
    return true;
  }

  @Override
  public CommunicatorConfig config() {
    return CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(60));
  }
}
