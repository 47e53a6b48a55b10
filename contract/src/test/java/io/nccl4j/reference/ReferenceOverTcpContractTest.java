package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.contract.BackendUnderTest;
import io.nccl4j.contract.ContractSuite;
import org.junit.jupiter.api.Tag;

/** The contract on the pure-Java reference over TCP, with each rank as if in a separate process. */
@Tag("slow")
class ReferenceOverTcpContractTest extends ContractSuite {
  @Override
  protected BackendUnderTest underTest() {
    return new BackendUnderTest() {
      @Override
      public Backend open(int ranks) {
        return ReferenceBackend.openAsProcesses(
            Math.max(1, Math.min(ranks, 4)),
            maxRanks(),
            ReferenceOptions.defaults().withTransport(Transport.TCP));
      }

      @Override
      public int maxRanks() {
        return 11; // As many as a test needs; ReferenceContractTest has more.
      }
    };
  }
}
