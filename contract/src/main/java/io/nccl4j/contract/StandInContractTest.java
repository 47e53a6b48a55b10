package io.nccl4j.contract;

import io.nccl4j.Backend;
import io.nccl4j.fixtures.libraries.OnStandIn;

/**
 * The contract on the NCCL backend, including bindings and loader, with the stand-in for libnccl
 * and libcudart. It tests nccl4j's code, not NCCL's.
 */
@OnStandIn
class StandInContractTest extends NcclContractSuite {
  @Override
  protected BackendUnderTest underTest() {
    return Devices.INSTANCE;
  }

  /** NCCL accepts one rank per device; the build sets NCCL4J_STANDIN_DEVICES. */
  private static final class Devices implements BackendUnderTest {
    static final Devices INSTANCE = new Devices();

    private final int count;

    Devices() {
      try (Backend backend = Backend.nccl()) {
        count = backend.devices().size();
      }
    }

    @Override
    public Backend open(int ranks) {
      return Backend.nccl();
    }

    @Override
    public boolean sharesRanks() {
      return true;
    }

    @Override
    public int maxRanks() {
      return count;
    }
  }
}
