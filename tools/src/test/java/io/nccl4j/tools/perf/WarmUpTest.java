package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.Commands;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Counts rank 0's operations, to test the warm-up before a row. */
class WarmUpTest {
  private static final int ITERATIONS = 7;
  private static final int WARM_UPS = 3;

  private final AtomicInteger outOfPlace = new AtomicInteger();
  private final AtomicInteger inPlace = new AtomicInteger();

  private Command run(String... more) {
    List<String> arguments =
        new ArrayList<>(
            List.of(
                "all_reduce", "--backend", "reference", "--ranks", "2", "-b", "1K", "-e", "1K"));
    arguments.addAll(List.of("-n", "" + ITERATIONS));
    arguments.addAll(Arrays.asList(more));
    Command command =
        Command.run(
            launch ->
                (comm, send, recv, op, root, stream) -> {
                  if (comm.rank() == 0) {
                    boolean same = send.address() == recv.address();
                    (same ? inPlace : outOfPlace).incrementAndGet();
                  }
                  launch.enqueue(comm, send, recv, op, root, stream);
                },
            arguments.toArray(String[]::new));
    assertEquals(Commands.OK, command.status(), command.err());
    assertEquals(1, command.rows().size(), command.out());
    return command;
  }

  private static long jitLines(Command command) {
    return command.out().lines().filter(line -> line.startsWith("# JIT warm-up: ")).count();
  }

  @Test
  void bothFormsWarmUpBeforeTheirRow() {
    Command command = run("-w", "" + WARM_UPS);
    // More than without it, below; how many fit into its time depends on the machine.
    int row = 1 + ITERATIONS + 1;
    assertTrue(outOfPlace.get() > WARM_UPS + row, () -> outOfPlace + " operations out of place");
    assertTrue(inPlace.get() > row, () -> inPlace + " operations in place");
    assertEquals(1, jitLines(command), command.out());
  }

  @Test
  void noJitWarmupRunsWhatNcclTestsRun() {
    Command command = run("-w", "" + WARM_UPS, "--no-jit-warmup");
    // One before the timed ones, and one for the data check.
    assertEquals(WARM_UPS + 1 + ITERATIONS + 1, outOfPlace.get());
    assertEquals(1 + ITERATIONS + 1, inPlace.get());
    assertEquals(0, jitLines(command), command.out());
  }

  @Test
  void zeroWarmupIterationsSkipAllWarmUp() {
    Command command = run("-w", "0");
    assertEquals(1 + ITERATIONS + 1, outOfPlace.get());
    assertEquals(1 + ITERATIONS + 1, inPlace.get());
    assertEquals(0, jitLines(command), command.out());
  }
}
