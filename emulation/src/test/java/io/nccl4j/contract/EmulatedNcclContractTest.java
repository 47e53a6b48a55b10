package io.nccl4j.contract;

import java.time.Duration;

/**
 * The contract on NVIDIA's unmodified NCCL over the emulated CUDA: communicators, groups, plans,
 * transports and proxies are NCCL's; devices and kernels are emulated. The build sets
 * NCCL4J_STANDIN_DEVICES.
 */
class EmulatedNcclContractTest extends NcclContractSuite {
  @Override
  protected BackendUnderTest underTest() {
    return Devices.INSTANCE;
  }

  private static final class Devices extends Gpus {
    static final Devices INSTANCE = new Devices();

    /** NCCL needs more than the default to create a communicator here. */
    @Override
    public Duration shortTimeout() {
      return Duration.ofSeconds(5);
    }
  }
}
