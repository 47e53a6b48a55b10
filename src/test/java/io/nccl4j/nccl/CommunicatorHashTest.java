package io.nccl4j.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.UniqueId;
import org.junit.jupiter.api.Test;

/** What the RAS service of NVIDIA's NCCL 2.30.7 reported for an id, and for a split. */
class CommunicatorHashTest {
  private static final long COMMUNICATOR = 0x4c0e7cffda865dbaL;

  @Test
  void hashOfIdIsNccls() {
    UniqueId id = UniqueId.fromHex("c99ef409d294390e0200da25c0000202" + "0".repeat(224));
    assertEquals(COMMUNICATOR, CommunicatorHash.ofId(id));
  }

  @Test
  void hashOfSplitIsNccls() {
    assertEquals(0x5a9bf1238de43b9aL, CommunicatorHash.ofChild(COMMUNICATOR, 1, 0));
  }
}
