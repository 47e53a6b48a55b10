package io.nccl4j.examples.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.Operation;
import io.nccl4j.Stream;
import io.nccl4j.reference.Algorithm;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.reference.ReferenceOptions;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;

/**
 * All-reduces of NCCL that was pinned to one algorithm and protocol, of numbers whose sums depend
 * on the order, against what the reference predicts for the rings and trees of NCCL's log, bit for
 * bit. All ranks are of this process.
 */
final class Prediction {
  /** Where Plan lets NCCL write its log. */
  static final String LOG = "NCCL_DEBUG_FILE";

  static final String ALGORITHM = "NCCL_ALGO";
  static final String PROTOCOL = "NCCL_PROTO";

  /**
   * The last one goes twice around a ring of four with Simple's chunks, where elements are large.
   */
  private static final long[] COUNTS = {7, 4097, 1_100_003};

  private static final long[] FEW_COUNTS = {7, 1025};

  private static final List<Call.Combine> COMBINES =
      List.of(
          Call.Combine.SUM,
          Call.Combine.PROD,
          Call.Combine.MAX,
          Call.Combine.MIN,
          Call.Combine.AVG);

  private final Child child;
  private final List<Communicator> actual;
  private final List<Communicator> predicted;
  private int compared;
  private int different;

  private Prediction(Child child, List<Communicator> actual, List<Communicator> predicted) {
    this.child = child;
    this.actual = actual;
    this.predicted = predicted;
  }

  static void run(Child child) throws IOException, Child.NotPossible {
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));
    try (Backend backend = Backend.nccl()) {
      int devices = backend.devices().size();
      int[] deviceOf = IntStream.range(0, child.size).map(rank -> rank % devices).toArray();
      List<Communicator> actual = backend.communicators(config, deviceOf);
      try {
        compare(child, config, actual, options(child.size, System.getenv()));
      } finally {
        close(actual);
      }
    }
  }

  /** Returns options that predict what NCCL was pinned to, with the graph that its log names. */
  static ReferenceOptions options(int ranks, Map<String, String> environment)
      throws IOException, Child.NotPossible {
    Path log = Path.of(environment.get(LOG));
    if (!Files.exists(log)) {
      throw new Child.NotPossible("the library has written no log to " + LOG);
    }
    NcclGraph graph = NcclGraph.of(Files.readAllLines(log));
    Protocol protocol = Protocol.valueOf(environment.get(PROTOCOL).toUpperCase(Locale.ROOT));
    Algorithm algorithm = Algorithm.valueOf(environment.get(ALGORITHM).toUpperCase(Locale.ROOT));
    Layout layout =
        algorithm == Algorithm.RING
            ? graph.ringLayout(ranks, protocol)
            : graph.treeLayout(ranks, protocol);
    return ReferenceOptions.defaults().withAlgorithm(algorithm).withLayout(layout);
  }

  /**
   * Compares all-reduces over communicators of all ranks with those that options predict; returns
   * how many differ.
   */
  static int compare(
      Child child, CommunicatorConfig config, List<Communicator> actual, ReferenceOptions options)
      throws IOException {
    int ranks = actual.size();
    child.fact("algorithm", options.algorithm().name().toLowerCase(Locale.ROOT));
    child.fact("layout", options.layout().toString());
    try (Backend reference = ReferenceBackend.open(ranks, options)) {
      List<Communicator> predicted =
          reference.communicators(config, IntStream.range(0, ranks).toArray());
      try {
        Prediction prediction = new Prediction(child, actual, predicted);
        prediction.compareAll();
        return prediction.different;
      } finally {
        close(predicted);
      }
    }
  }

  /** Closing a rank may wait for the others, so all are closed at the same time. */
  private static void close(List<Communicator> ranks) {
    try (ExecutorService threads =
        Executors.newThreadPerTaskExecutor(Thread.ofPlatform().daemon().factory())) {
      CompletableFuture.allOf(
              ranks.stream()
                  .map(rank -> CompletableFuture.runAsync(rank::close, threads))
                  .toArray(CompletableFuture<?>[]::new))
          .join();
    }
  }

  private void compareAll() throws IOException {
    Map<Call.Combine, Map<DataType, String>> results = new EnumMap<>(Call.Combine.class);
    for (Call.Combine combine : COMBINES) {
      results.put(combine, new EnumMap<>(DataType.class));
      for (DataType type : DataType.values()) {
        results.get(combine).put(type, compare(combine, type));
      }
      child.saveUnfinished("compared " + results.keySet());
    }
    finish(results);
  }

  private String compare(Call.Combine combine, DataType type) {
    int wrong = 0;
    try {
      for (long count : child.quick ? FEW_COUNTS : COUNTS) {
        Call call = new Call(Operation.ALL_REDUCE, combine, type, actual.size(), count, 0, true);
        wrong += compare(call);
      }
    } catch (IllegalArgumentException tooOldAGpu) {
      return "left out";
    }
    return wrong == 0 ? "ok" : "**" + wrong + "**";
  }

  /** Returns how many ranks have other bits than predicted. */
  private int compare(Call call) {
    List<MemorySegment> found = allReduce(actual, call);
    List<MemorySegment> expected = allReduce(predicted, call);
    int wrong = 0;
    for (int rank = 0; rank < found.size(); rank++) {
      compared++;
      long at = found.get(rank).mismatch(expected.get(rank));
      if (at >= 0) {
        wrong++;
        note(call, rank, at / call.type().bytes(), found.get(rank), expected.get(rank));
      }
    }
    different += wrong;
    return wrong;
  }

  private void note(
      Call call, int rank, long element, MemorySegment found, MemorySegment expected) {
    if (different == 0) {
      child.note(
          "rank %d: %s: element %d is %s, predicted was %s"
              .formatted(
                  rank,
                  call,
                  element,
                  CrossCheck.element(call, found, element),
                  CrossCheck.element(call, expected, element)));
    }
  }

  /** Reduces the ranks' inputs in one group and returns every rank's result. */
  private static List<MemorySegment> allReduce(List<Communicator> ranks, Call call) {
    List<Buffer> buffers = new ArrayList<>();
    List<Stream> streams = new ArrayList<>();
    try {
      for (Communicator comm : ranks) {
        Stream stream = comm.newStream();
        streams.add(stream);
        Buffer data = comm.allocate(call.type(), call.count());
        buffers.add(data);
        data.copyFrom(Inputs.depending(call, comm.rank()), stream);
      }
      Group.run(
          () -> {
            for (int i = 0; i < ranks.size(); i++) {
              Buffer data = buffers.get(i);
              ranks.get(i).allReduce(data, data, call.combine().op(), streams.get(i));
            }
          });
      List<MemorySegment> results = new ArrayList<>();
      for (int i = 0; i < ranks.size(); i++) {
        results.add(MemorySegment.ofArray(new byte[Math.toIntExact(buffers.get(i).byteSize())]));
        buffers.get(i).copyTo(results.getLast(), streams.get(i));
        streams.get(i).synchronize();
      }
      return results;
    } finally {
      buffers.forEach(Buffer::close);
      streams.forEach(Stream::close);
    }
  }

  private void finish(Map<Call.Combine, Map<DataType, String>> results) {
    List<String> columns = new ArrayList<>(List.of(""));
    for (DataType type : DataType.values()) {
      columns.add(type.name().toLowerCase(Locale.ROOT));
    }
    List<List<Object>> rows = new ArrayList<>();
    results.forEach(
        (combine, types) -> {
          List<Object> row = new ArrayList<>(List.of(combine.name().toLowerCase(Locale.ROOT)));
          row.addAll(types.values());
          rows.add(row);
        });
    child.table(new Table("All-reduces against the prediction of the reference", columns, rows));
    child.note(
        "Floats have random mantissas and magnitudes, so that the order of the ranks, the division"
            + " into channels and chunks and every rounding show. Compared bit for bit.");
    child.end(
        different == 0 ? Report.Verdict.PASSED : Report.Verdict.FAILED,
        "%d results compared with the prediction bit for bit, %d differ"
            .formatted(compared, different));
  }
}
