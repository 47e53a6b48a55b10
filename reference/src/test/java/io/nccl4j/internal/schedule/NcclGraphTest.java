package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/**
 * Tests with lines of NCCL's log, as {@code initTransportsRank} and {@code rings.cc} print them.
 */
class NcclGraphTest {
  private static final String PREFIX = "machine:4711:4720 [0] NCCL INFO ";

  @Test
  void ringsAreReadByChannel() {
    NcclGraph graph =
        NcclGraph.of(
            List.of(
                PREFIX + "Channel 00/02 :   0  2  1  3",
                PREFIX + "Channel 01/02 : 0 1 2 3",
                PREFIX + "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"));
    Layout layout = graph.ringLayout(4, Protocol.LL).orElseThrow();
    assertEquals(List.of(List.of(0, 2, 1, 3), List.of(0, 1, 2, 3)), layout.ringOrders());
    assertEquals(2, layout.channels());
    assertEquals(Protocol.LL, layout.protocol());
  }

  @Test
  void chainOfOneNodeIsReadFromRoot() {
    NcclGraph graph =
        NcclGraph.of(
            List.of(
                PREFIX + "Trees [0] 2/-1/-1->0->-1 [1] 2/-1/-1->0->-1",
                PREFIX + "Trees [0] 3/-1/-1->1->2 [1] 3/-1/-1->1->2",
                PREFIX + "Trees [0] 1/-1/-1->2->0 [1] 1/-1/-1->2->0",
                PREFIX + "Trees [0] -1/-1/-1->3->1 [1] -1/-1/-1->3->1"));
    Layout layout = graph.treeLayout(4, Protocol.SIMPLE).orElseThrow();
    assertEquals(4, layout.ranksPerNode());
    assertEquals(List.of(List.of(0, 2, 1, 3), List.of(0, 2, 1, 3)), layout.treeOrders());
  }

  @Test
  void nodesOfOneRankHaveDoubleTree() {
    NcclGraph graph =
        NcclGraph.of(
            List.of(
                PREFIX + "Trees [0] 2/-1/-1->0->-1 [1] -1/-1/-1->0->1",
                PREFIX + "Trees [0] -1/-1/-1->1->2 [1] 2/0/-1->1->3",
                PREFIX + "Trees [0] 1/3/-1->2->0 [1] -1/-1/-1->2->1",
                PREFIX + "Trees [0] -1/-1/-1->3->2 [1] 1/-1/-1->3->-1"));
    Layout layout = graph.treeLayout(4, Protocol.SIMPLE).orElseThrow();
    assertEquals(1, layout.ranksPerNode());
    assertEquals(1, layout.firstTreeChannels());
  }

  @Test
  void unsupportedTreesHaveNoLayout() {
    NcclGraph graph =
        NcclGraph.of(
            List.of(
                PREFIX + "Trees [0] 1/2/-1->0->-1",
                PREFIX + "Trees [0] -1/-1/-1->1->0",
                PREFIX + "Trees [0] -1/-1/-1->2->0"));
    assertEquals(Optional.empty(), graph.treeLayout(3, Protocol.SIMPLE));
    assertEquals(Optional.empty(), graph.ringLayout(3, Protocol.LL));
  }

  @Test
  void linesOfOneCommunicatorAreThoseOfItsThreadWhileItIsCreated() {
    String other = "machine:4711:4721 [1] NCCL INFO ";
    List<String> log =
        List.of(
            PREFIX + "ncclCommInitRankConfig comm 0xa0 rank 0 nranks 2 cudaDev 0 - Init START",
            PREFIX + "Channel 00/01 : 0 1",
            PREFIX + "ncclCommInitRankConfig comm 0xa0 rank 0 nranks 2 cudaDev 0 - Init COMPLETE",
            PREFIX + "Channel 00/01 : 1 0",
            // A later communicator at the same address.
            PREFIX + "ncclCommSplit comm 0xa0 rank 0 nranks 3 parent 0xb0 - Init START",
            other + "ncclCommSplit comm 0xa0c rank 1 nranks 3 parent 0xb4 - Init START",
            other + "Trees [0] -1/-1/-1->1->0",
            PREFIX + "Channel 00/01 : 0 2 1",
            PREFIX + "Trees [0] 2/-1/-1->0->-1",
            PREFIX + "P2P Chunksize set to 131072",
            other + "ncclCommSplit comm 0xa0c rank 1 nranks 3 parent 0xb4 - Init COMPLETE",
            PREFIX + "ncclCommSplit comm 0xa0 rank 0 nranks 3 parent 0xb0 - Init COMPLETE",
            // Of another communicator.
            PREFIX + "Channel 00/01 : 2 1 0");
    assertEquals(
        List.of(PREFIX + "Channel 00/01 : 0 2 1", PREFIX + "Trees [0] 2/-1/-1->0->-1"),
        NcclGraph.linesOf(log, 0xa0));
    assertEquals(List.of(other + "Trees [0] -1/-1/-1->1->0"), NcclGraph.linesOf(log, 0xa0c));
    assertEquals(List.of(), NcclGraph.linesOf(log, 0xb0));
  }
}
