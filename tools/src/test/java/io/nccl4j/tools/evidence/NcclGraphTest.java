package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.tools.evidence.Child.NotPossible;
import java.util.List;
import org.junit.jupiter.api.Test;

/**
 * Tests with lines of NCCL's log, as {@code initTransportsRank} and {@code rings.cc} print them.
 */
class NcclGraphTest {
  private static final String PREFIX = "machine:4711:4720 [0] NCCL INFO ";

  @Test
  void ringsAreReadByChannel() throws NotPossible {
    NcclGraph graph =
        NcclGraph.of(
            List.of(
                PREFIX + "Channel 00/02 :   0  2  1  3",
                PREFIX + "Channel 01/02 : 0 1 2 3",
                PREFIX + "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"));
    Layout layout = graph.ringLayout(4, Protocol.LL);
    assertEquals(List.of(List.of(0, 2, 1, 3), List.of(0, 1, 2, 3)), layout.ringOrders());
    assertEquals(2, layout.channels());
    assertEquals(Protocol.LL, layout.protocol());
  }

  @Test
  void chainOfOneNodeIsReadFromRoot() throws NotPossible {
    NcclGraph graph =
        NcclGraph.of(
            List.of(
                PREFIX + "Trees [0] 2/-1/-1->0->-1 [1] 2/-1/-1->0->-1",
                PREFIX + "Trees [0] 3/-1/-1->1->2 [1] 3/-1/-1->1->2",
                PREFIX + "Trees [0] 1/-1/-1->2->0 [1] 1/-1/-1->2->0",
                PREFIX + "Trees [0] -1/-1/-1->3->1 [1] -1/-1/-1->3->1"));
    Layout layout = graph.treeLayout(4, Protocol.SIMPLE);
    assertEquals(4, layout.ranksPerNode());
    assertEquals(List.of(List.of(0, 2, 1, 3), List.of(0, 2, 1, 3)), layout.treeOrders());
  }

  @Test
  void nodesOfOneRankHaveDoubleTree() throws NotPossible {
    NcclGraph graph =
        NcclGraph.of(
            List.of(
                PREFIX + "Trees [0] 2/-1/-1->0->-1 [1] -1/-1/-1->0->1",
                PREFIX + "Trees [0] -1/-1/-1->1->2 [1] 2/0/-1->1->3",
                PREFIX + "Trees [0] 1/3/-1->2->0 [1] -1/-1/-1->2->1",
                PREFIX + "Trees [0] -1/-1/-1->3->2 [1] 1/-1/-1->3->-1"));
    Layout layout = graph.treeLayout(4, Protocol.SIMPLE);
    assertEquals(1, layout.ranksPerNode());
    assertEquals(1, layout.firstTreeChannels());
  }

  @Test
  void unsupportedTreesAreNotPossible() {
    NcclGraph graph =
        NcclGraph.of(
            List.of(
                PREFIX + "Trees [0] 1/2/-1->0->-1",
                PREFIX + "Trees [0] -1/-1/-1->1->0",
                PREFIX + "Trees [0] -1/-1/-1->2->0"));
    String reason =
        assertThrows(NotPossible.class, () -> graph.treeLayout(3, Protocol.SIMPLE)).getMessage();
    assertTrue(
        reason.startsWith("the reference has no layout for the trees in NCCL's log: {0={0="),
        reason);
    reason = assertThrows(NotPossible.class, () -> graph.ringLayout(3, Protocol.LL)).getMessage();
    assertEquals("NCCL's log has no rings of 3 ranks: {}", reason);
  }
}
