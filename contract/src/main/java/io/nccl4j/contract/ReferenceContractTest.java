package io.nccl4j.contract;

import io.nccl4j.Backend;

/** The contract on the pure-Java reference, with all ranks in this process. */
class ReferenceContractTest extends ContractSuite {
  @Override
  protected BackendUnderTest underTest() {
    return new BackendUnderTest() {
      @Override
      public Backend open(int ranks) {
        return Backend.reference(Math.max(1, Math.min(ranks, 4)));
      }

      @Override
      public int maxRanks() {
        return 64;
      }
    };
  }
}
