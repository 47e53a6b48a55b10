package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.spi.Contract;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Ranks of one process that behave as if they were in several processes. */
class OpenAsProcessesTest {
  @Test
  void ranksAreDistributedRoundRobin() {
    Ranks.run(
        3,
        ReferenceBackend.openAsProcesses(1, 2, ReferenceOptions.defaults()),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          CommunicatorState communicator =
              ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank().communicator();
          List<Boolean> remote =
              IntStream.range(0, 3)
                  .mapToObj(rank -> communicator.remoteProcess(rank) != null)
                  .toList();
          boolean inSecond = comm.rank() == 1;
          assertEquals(List.of(inSecond, !inSecond, inSecond), remote);
        });
  }

  @ParameterizedTest
  @CsvSource({
    "0, devices is 0; it must be 1 or more",
    "32769, devices is 32769; the reference backend takes at most 32768",
  })
  void tooFewOrTooManyDevicesAreRefused(int devices, String message) {
    IllegalArgumentException refused =
        assertThrows(IllegalArgumentException.class, () -> ReferenceBackend.open(devices));
    assertEquals(message, refused.getMessage());
  }
}
