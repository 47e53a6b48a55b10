package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.FlightRecorder;
import io.nccl4j.Graph;
import io.nccl4j.ReduceOp;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.io.TempDir;

/** What {@link FlightRecorder} records. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class FlightRecorderContract {
  private static final Pattern ENTRY =
      Pattern.compile(
          "\"collective_seq_id\":(\\d+),\n\"p2p_seq_id\":(\\d+),\n\"op_id\":\\d+,\n"
              + "\"profiling_name\":\"nccl:([^\"]*)\"");

  @TempDir Path folder;

  abstract BackendUnderTest underTest();

  /** Returns name and numbers of each operation that a rank has recorded. */
  private List<String> recorded(Rank rank) throws IOException {
    Path dumps = folder.resolve(String.valueOf(rank.rank()));
    String name = rank.comm().config().name();
    for (Path pickle : FlightRecorder.dump(dumps)) {
      String file = pickle.getFileName().toString().replaceFirst("^nccl4j_", "") + ".json";
      String json = Files.readString(dumps.resolve(file));
      if (json.contains("\"name\":\"" + name + "\"")
          && file.endsWith("_" + rank.rank() + ".json")) {
        return ENTRY
            .matcher(json)
            .results()
            .map(found -> found.group(3) + " " + found.group(1) + " " + found.group(2))
            .toList();
      }
    }
    throw new AssertionError("no dump of " + rank.comm());
  }

  private Ranks ranks(String name) {
    return Ranks.of(underTest(), 2, underTest().config().withName(name));
  }

  private static void needTwoRanks(BackendUnderTest underTest) {
    assumeTrue(underTest.maxRanks() > 1, "needs two ranks");
    ProcessRank.assumeNone(2);
  }

  @Test
  void operationsHaveNumbersOfTheirKind() {
    needTwoRanks(underTest());
    try (Ranks ranks = ranks("flight-numbers")) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            if (rank.rank() == 0) {
              rank.comm().send(value, 1, rank.stream());
            } else {
              rank.comm().recv(value, 0, rank.stream());
            }
            rank.comm().broadcast(value, value, 0, rank.stream());
            rank.stream().synchronize();
            assertEquals(
                List.of(
                    "all_reduce 1 0",
                    rank.rank() == 0 ? "send 0->1 1 1" : "recv 1<-0 1 1",
                    "broadcast 2 0"),
                recorded(rank));
          });
    }
  }

  @Test
  void eachLaunchOfGraphIsRecorded() {
    needTwoRanks(underTest());
    try (Ranks ranks = ranks("flight-graph")) {
      ranks.each(
          rank -> {
            Buffer value = rank.allocate(DataType.INT32, 1);
            Runnable sum = () -> rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            try (Graph graph = Graph.capture(rank.stream(), sum)) {
              assertEquals(List.of(), recorded(rank));
              graph.launch(rank.stream());
              graph.launch(rank.stream());
              rank.stream().synchronize();
              assertEquals(List.of("all_reduce 1 0", "all_reduce 2 0"), recorded(rank));
            }
          });
    }
  }

  @Test
  void closedCommunicatorIsForgotten() throws IOException {
    needTwoRanks(underTest());
    ranks("flight-closed").close();
    for (Path pickle : FlightRecorder.dump(folder)) {
      String text = Files.readString(pickle, StandardCharsets.ISO_8859_1);
      assertFalse(text.contains("flight-closed"), pickle::toString);
    }
  }
}
