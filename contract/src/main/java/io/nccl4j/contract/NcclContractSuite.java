package io.nccl4j.contract;

import org.junit.jupiter.api.Nested;

/** The contract of the NCCL backend: that of every backend, and what NCCL alone has. */
abstract class NcclContractSuite extends ContractSuite {
  @Nested
  class NcclFeatures extends NcclFeaturesContract {
    @Override
    BackendUnderTest underTest() {
      return NcclContractSuite.this.underTest();
    }
  }

  @Nested
  class Deadlines extends DeadlinesContract {
    @Override
    BackendUnderTest underTest() {
      return NcclContractSuite.this.underTest();
    }
  }
}
