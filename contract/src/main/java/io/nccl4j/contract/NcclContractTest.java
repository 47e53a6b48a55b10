package io.nccl4j.contract;

import io.nccl4j.fixtures.libraries.OnGpu;

/**
 * The contract on NVIDIA's NCCL and GPUs, with one rank per device. {@code -Dtest.ranks=} sets
 * another number of ranks if NCCL accepts several per device ({@code
 * NCCL_MULTI_RANK_GPU_ENABLE=1}).
 */
@OnGpu
class NcclContractTest extends NcclContractSuite {
  @Override
  protected BackendUnderTest underTest() {
    return Opened.GPUS;
  }

  /** Loads the libraries only when a test runs. */
  private static final class Opened {
    static final Gpus GPUS = new Gpus();
  }
}
