package io.nccl4j.contract;

import io.nccl4j.Backend;
import io.nccl4j.reference.Links;
import io.nccl4j.reference.SeparateSites;

/**
 * The contract on the pure-Java reference over shared memory, each rank as if in a process of its
 * own.
 */
class ReferenceOverSharedMemoryContractTest extends ContractSuite {
  @Override
  BackendUnderTest underTest() {
    return new BackendUnderTest() {
      @Override
      public Backend open(int ranks) {
        return SeparateSites.open(Math.max(1, Math.min(ranks, 4)), Links.AUTO);
      }

      @Override
      public int maxRanks() {
        return 16;
      }
    };
  }
}
