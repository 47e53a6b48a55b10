package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.tools.cli.Commands;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Wrong data is found, counted and reported with exit status 3. */
class DataCheckTest {
  private static final String[] ARGUMENTS = {"-b", "64K", "-e", "64K", "-n", "2", "-w", "0"};

  private static Command run(UnaryOperator<RankEnqueue> fault, String collective, String... more) {
    String[] head = {collective, "--backend", "reference", "--ranks", "3"};
    String[] all = new String[head.length + ARGUMENTS.length + more.length];
    System.arraycopy(head, 0, all, 0, head.length);
    System.arraycopy(ARGUMENTS, 0, all, head.length, ARGUMENTS.length);
    System.arraycopy(more, 0, all, head.length + ARGUMENTS.length, more.length);
    return Command.run(fault, all);
  }

  /** Damages received data; enqueued after a collective that is not in a group. */
  private interface Damage {
    void damage(Buffer recv, Stream stream);
  }

  private static UnaryOperator<RankEnqueue> onRank(int rank, Damage damage) {
    return launch ->
        (Communicator comm, Buffer send, Buffer recv, ReduceOp op, int root, Stream stream) -> {
          launch.enqueue(comm, send, recv, op, root, stream);
          if (comm.rank() == rank) {
            damage.damage(recv, stream);
          }
        };
  }

  private static void assertWrong(Command command, String outOfPlace, String inPlace) {
    assertEquals(Commands.WRONG_DATA, command.status(), command.out() + command.err());
    assertEquals(outOfPlace, command.rows().getFirst().get(8), command.out());
    assertEquals(inPlace, command.rows().getFirst().get(12), command.out());
    assertTrue(command.out().contains("# Out of bounds values : 2 FAILED"), command.out());
  }

  @Test
  void oneWrongElementIsCounted() {
    Damage lastElement =
        (recv, stream) -> recv.slice(recv.count() - 1, 1).fill((byte) 0x55, stream);
    assertWrong(run(onRank(2, lastElement), "all_reduce", "-t", "3"), "1", "1");
  }

  @Test
  void allWrongElementsAreCounted() {
    Damage all = (recv, stream) -> recv.fill((byte) 0x55, stream);
    assertWrong(run(onRank(0, all), "all_reduce", "-t", "3"), "16384", "16384");
  }

  @Test
  void inexactAveragesAreChecked() {
    Damage first = (recv, stream) -> recv.slice(0, 2).fill((byte) 0x55, stream);
    assertWrong(run(onRank(1, first), "all_reduce", "-t", "3", "-o", "avg"), "2", "2");
  }

  @ParameterizedTest
  @EnumSource(Collective.class)
  void collectiveThatDoesNothingIsWrong(Collective collective) {
    Command command = run(launch -> (comm, send, recv, op, root, stream) -> {}, collective.label());
    assertEquals(Commands.WRONG_DATA, command.status(), command.out() + command.err());
  }

  @ParameterizedTest
  @EnumSource(
      value = Collective.class,
      names = {"ALL_REDUCE", "BROADCAST", "ALL_GATHER", "REDUCE_SCATTER", "SCATTER", "SENDRECV"})
  void staleDataIsWrong(Collective collective) {
    // Skips one operation per rank: the checked one out of place.
    int[] calls = new int[3];
    UnaryOperator<RankEnqueue> stale =
        launch ->
            (comm, send, recv, op, root, stream) -> {
              // One untimed, two timed, then the checked one.
              if (calls[comm.rank()]++ != 3) {
                launch.enqueue(comm, send, recv, op, root, stream);
              }
            };
    Command command = run(stale, collective.label());
    assertEquals(Commands.WRONG_DATA, command.status(), command.out() + command.err());
    assertEquals(collective.hasInPlace() ? "0" : "N/A", command.rows().getFirst().get(12));
  }

  @Test
  void writeToOtherRankIsWrong() {
    Damage scribble = (recv, stream) -> recv.slice(7, 3).fill((byte) 0, stream);
    assertWrong(run(onRank(1, scribble), "reduce", "-t", "3", "-d", "int32"), "3", "3");
  }

  @Test
  void uncheckedDataIsNotWrong() {
    Command command =
        run(launch -> (comm, send, recv, op, root, stream) -> {}, "all_reduce", "-c", "0");
    assertEquals(Commands.OK, command.status());
    assertEquals("N/A", command.rows().getFirst().get(8));
  }

  @Test
  void missingRankTimesOut() {
    UnaryOperator<RankEnqueue> missing =
        launch ->
            (comm, send, recv, op, root, stream) -> {
              if (comm.rank() != 2) {
                launch.enqueue(comm, send, recv, op, root, stream);
              }
            };
    Command command = run(missing, "all_reduce", "-T", "1");
    assertEquals(Commands.TIMED_OUT, command.status(), command.err());
    assertTrue(
        command
            .err()
            .startsWith(
                "all_reduce_perf: time-out: allReduce: not finished after 1.0 s: rank 2 did not call allReduce("),
        command.err());
    assertEquals(1, command.errors().size(), command.err());
  }
}
