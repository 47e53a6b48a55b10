package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Stream;
import io.nccl4j.tools.cli.Commands;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Bad arguments exit with status 2 and one line that gives the rule. */
class ArgumentsTest {
  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          RANK=1 WORLD_SIZE=4                    | --procs is 2, but this is process 1 of 4, started by plain variables
          OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 | --procs is 2, but this is process 0 of 2, started by Open MPI
          PMI_RANK=2 PMI_SIZE=3                  | --procs is 2, but this is process 2 of 3, started by MPICH
          WORLD_SIZE=4                           | WORLD_SIZE is 4, but RANK is not set
          RANK=4 WORLD_SIZE=4                    | RANK is 4
          """)
  void procsUnderLauncherIsRefused(String environment, String expected) {
    Map<String, String> variables = new HashMap<>();
    for (String variable : environment.split(" ", -1)) {
      variables.put(variable.split("=", 2)[0], variable.split("=", 2)[1]);
    }
    Command command = Command.runIn(variables, "all_reduce", "--procs", "2");
    assertEquals(Commands.BAD_ARGUMENTS, command.status());
    assertTrue(command.err().contains(expected), command.err());
    assertEquals(1, command.errors().size(), command.err());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          all_reduce -d float128         | 'float128' is not one of int8, uint8,
          all_reduce -o xor              | 'xor' is not one of sum, prod, max, min, avg, mulsum or all
          all_reduce -b 0                | -b is 0; it must be 1 byte or more
          all_reduce -b 2M -e 1M         | -b must not be above -e
          all_reduce -b 64M              | -b is 67108864 and -e is 33554432
          all_reduce -b 8 -e 1M -f 1     | give -f of 2 or more, or -i of 1 or more
          all_reduce -b 8 -e 1M -f 0     | give -f of 2 or more, or -i of 1 or more
          all_reduce -b 8 -e 1M -f 1 -i 0 | give -f of 2 or more, or -i of 1 or more
          all_reduce -b 8 -e 1M -i 0     | give -f of 2 or more, or -i of 1 or more
          all_reduce -b 8 -e 1M -f -2    | -f is -2; it must be 2 or more
          all_reduce --minbytes 12Q      | for option '--minbytes': '12Q' is not a size: a number of bytes, optionally with K, M or G
          all_reduce -b -8               | '-8' is not a size
          all_reduce -e eight            | 'eight' is not a size
          all_reduce -b 99999999999G     | is too large
          all_reduce -f 1.5              | '1.5' is not a whole number
          all_reduce -n 0                | -n is 0; it must be 1 or more
          all_reduce -n -3               | -n is -3; it must be 1 or more
          all_reduce -n twenty           | 'twenty' is not a whole number
          all_reduce -m 0                | -m is 0; it must be 1 or more
          all_reduce -w -1               | -w is -1; it must be 0 or more
          all_reduce -N -1               | -N is -1; it must be 0 or more
          all_reduce -c -1               | -c is -1; it must be 0 or more
          all_reduce -T -1               | -T is -1; it must be 0 or more
          all_reduce -u -1               | -u is -1; it must be 0 or more
          all_reduce -a 4                | -a is 4; it must be from 0 to 3
          all_reduce -z 4                | -z is 4; it must be from 0 to 3
          all_reduce -p 2                | -p is 2; it must be from 0 to 1
          all_reduce -C 2                | -C is 2; it must be from 0 to 1
          all_reduce -K 3                | -K is 3; it needs -I 1
          all_reduce -I 1 -n 5 -K 5      | -K is 5; it needs -I 1 and must be from 0 to 4
          all_reduce -t 0                | -t is 0; it must be from 1 to 4096
          all_reduce -g -1               | -g is -1; it must be from 1 to 4096
          all_reduce --ranks 0           | --ranks is 0; it must be from 1 to 4096
          all_reduce --ranks 3 -t 2      | --ranks is 3; it must be a multiple of -t, 2
          all_reduce --ranks 3 -g 2      | --ranks is 3 and -t times -g is 2
          all_reduce --procs 0           | --procs is 0; it must be from 1 to
          all_reduce --procs 4097        | --procs is 4097; it must be from 1 to
          all_reduce --procs two         | 'two' is not a whole number
          all_reduce --limit 5           | --limit needs --procs
          all_reduce --procs 2 --limit 0 | --limit is 0; it must be 1 or more
          reduce --ranks 2 -r 2          | -r is 2; it must be from 0 to 1
          reduce --ranks 2 -r -2         | -r is -2; it must be -1 or more
          all_reduce --algo star         | 'star' is not one of auto, ring, tree, direct, nvls,
          all_reduce --algo tree:4K      | '4K' is not a range of sizes, such as ..64K, 1K..64K or 64K..
          all_reduce --algo tree:8K..4K  | '8K..4K' is a range that begins after its end
          all_reduce --algo tree:..few   | 'few' is not a size
          all_reduce --algo tree,        | '' is not one of auto, ring, tree,
          all_reduce --proto fast        | 'fast' is not one of ll, ll128, simple
          alltoall --algo ring           | --algo and --proto do not apply to alltoall, which consists of sends and receives
          broadcast --algo ring          | --algo applies to all_reduce only on the reference backend, not to broadcast
          all_reduce --algo nvls         | --algo has nvls, which the reference backend does not have
          all_reduce --algo tree:..8     | --algo has ranges of sizes; the reference backend has one algorithm for all
          all_reduce --proto ll          | --proto is for NCCL; the reference backend has no protocols
          all_reduce --show-algorithm    | --show-algorithm is for NCCL; the reference backend
          all_reduce --backend=mpi       | expected one of [AUTO, NCCL, REFERENCE]
          all_reduce -J result.txt       | -J is result.txt; the name must end in .json
          all_reduce -G -1               | -G is -1; it must be 0 or more
          all_reduce --cudagraph 1 -z 1  | -G is 1; captured operations cannot wait
          all_reduce -G 2 -I 1           | -G is 2; captured operations cannot wait
          all_reduce -y 1                | -y is not supported
          all_reduce -R 2                | -R is not supported
          all_reduce -x 1                | -x is not supported
          all_reduce -D 1                | -D is not supported
          all_reduce -M 1                | -M is not supported
          all_reduce --bogus             | Unknown option: '--bogus'; see --help
          all_reduce all_gather          | Unmatched argument
          all_reduce -n                  | Missing required parameter for option '--iters' (N)
          all_reducer                    | (COLLECTIVE): 'all_reducer' is not one of all_reduce, all_gather,
          """)
  void badArgumentsPrintOneLineAndExitTwo(String line, String expected) {
    Command command = Command.run(("--backend reference " + line).split(" "));
    assertEquals(List.of(command.err().strip()), command.errors(), "one line");
    assertTrue(command.err().contains(expected), command.err());
    assertEquals(Commands.BAD_ARGUMENTS, command.status());
    assertEquals("", command.out());
  }

  @Test
  void tooManyReferenceRanksAreRefused() {
    int max = 128 * Runtime.getRuntime().availableProcessors();
    Command command =
        Command.run("all_reduce", "--backend", "reference", "--ranks", "" + (max + 1));
    assertEquals(Commands.BAD_ARGUMENTS, command.status());
    assertEquals(
        "all_reduce_perf: %d ranks requested; on the reference backend each rank is a thread, and %d processors run at most %d"
            .formatted(max + 1, max / 128, max),
        command.err().strip());
  }

  @Test
  void missingCollectiveIsRefused() {
    Command command = Command.run();
    assertTrue(command.err().contains("no collective given; use one of all_reduce"), command.err());
    assertEquals(Commands.BAD_ARGUMENTS, command.status());
  }

  @Test
  void helpNamesAllCollectivesAndExitsZero() {
    Command command = Command.run("--help");
    assertEquals(Commands.OK, command.status());
    for (Collective collective : Collective.values()) {
      assertTrue(command.out().contains(collective.label()), collective.label());
    }
    assertEquals("", command.err());
  }

  @Test
  void helpHasTheDefaultTimeouts() {
    String help = Command.run("--help").out().replaceAll("\\s+", " ");
    String expected =
        "Default 0: %d minutes, for work on NCCL %d. Processes that start late are always waited for %d minutes"
            .formatted(
                Ranks.DEFAULT_TIMEOUT.toMinutes(),
                Stream.DEFAULT_TIMEOUT.toMinutes(),
                Job.RENDEZVOUS_TIMEOUT.toMinutes());
    assertTrue(help.contains(expected), help);
  }

  @Test
  void ncclTestsFlagsAreAcceptedInEveryForm() {
    Command command =
        Command.run(
            "all_reduce",
            "--backend=reference",
            "-t1",
            "-g",
            "2",
            "--minbytes",
            "1K",
            "--maxbytes=4K",
            "--stepfactor",
            "2",
            "-n2",
            "--warmup_iters",
            "0",
            "-p",
            "1",
            "-y",
            "0",
            "-G",
            "0",
            "-R",
            "0",
            "-M",
            "0",
            "--check",
            "1",
            "-V",
            "16");
    assertEquals("", command.err());
    assertEquals(Commands.OK, command.status());
    assertEquals(3, command.rows().size());
  }

  @Test
  void oneSizeNeedsNoStep() {
    Command command = Command.reference("all_reduce -b 1K -e 1K -f 1");
    assertEquals(Commands.OK, command.status());
    assertEquals(1, command.rows().size());
  }
}
