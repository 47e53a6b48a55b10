package io.nccl4j.tools.evidence;

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
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
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
 * bit. All ranks are of this process, or one of them, and each process predicts for all.
 */
final class Prediction {
  /** Where EvidencePlan lets NCCL write its log, a file for each process. */
  static final String LOG = "NCCL_DEBUG_FILE";

  /** The end of that name, in which NCCL puts its process id. */
  static final String PROCESS = ".%p";

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

  /** Communicators with a stream each. */
  private record Ranks(List<Communicator> comms, List<Stream> streams) implements AutoCloseable {
    static Ranks of(List<Communicator> comms) {
      return new Ranks(comms, comms.stream().map(Communicator::newStream).toList());
    }

    @Override
    public void close() {
      streams.forEach(Stream::close);
    }
  }

  private final Child child;
  private final Ranks actual;
  private final Ranks predicted;
  private int compared;
  private int different;

  private Prediction(Child child, Ranks actual, Ranks predicted) {
    this.child = child;
    this.actual = actual;
    this.predicted = predicted;
  }

  static void run(Child child) throws IOException, Child.NotPossible {
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));
    try (Backend backend = Backend.nccl();
        Peers peers = child.meet == null ? null : new Peers(child)) {
      List<Communicator> actual =
          peers == null
              ? backend.newCommunicators(config, devices(backend, child.size))
              : List.of(peers.communicator(backend, config.withDevice(child.device)));
      try {
        awaitLogs(actual);
        compare(child, config, actual, options(child.size, System.getenv()));
      } finally {
        close(actual);
      }
    }
  }

  private static int[] devices(Backend backend, int ranks) {
    int devices = backend.devices().size();
    return IntStream.range(0, ranks).map(rank -> rank % devices).toArray();
  }

  /** A rank has written its part of the log when it takes part in an operation. */
  private static void awaitLogs(List<Communicator> ranks) {
    int size = ranks.getFirst().size();
    Call call = new Call(Operation.ALL_REDUCE, Call.Combine.SUM, DataType.INT32, size, 1, 0, true);
    MemorySegment input = Inputs.depending(call, 0);
    try (Ranks all = Ranks.of(ranks);
        Data data = new Data(all, call)) {
      data.allReduce(Call.Combine.SUM, Collections.nCopies(size, input));
    }
  }

  /** Returns options that predict what NCCL was pinned to, with the graph that its log names. */
  static ReferenceOptions options(int ranks, Map<String, String> environment)
      throws IOException, Child.NotPossible {
    Path log = Path.of(environment.get(LOG));
    String prefix = log.getFileName().toString().replace(PROCESS, "");
    List<String> lines = new ArrayList<>();
    try (DirectoryStream<Path> logs = Files.newDirectoryStream(log.getParent(), prefix + "*")) {
      for (Path each : logs) {
        lines.addAll(Files.readAllLines(each));
      }
    }
    if (lines.isEmpty()) {
      throw new Child.NotPossible("the library has written no log to " + LOG);
    }
    NcclGraph graph = NcclGraph.of(lines);
    Protocol protocol = Protocol.valueOf(environment.get(PROTOCOL).toUpperCase(Locale.ROOT));
    Algorithm algorithm = Algorithm.valueOf(environment.get(ALGORITHM).toUpperCase(Locale.ROOT));
    Layout layout =
        algorithm == Algorithm.RING
            ? graph.ringLayout(ranks, protocol)
            : graph.treeLayout(ranks, protocol);
    return ReferenceOptions.defaults().withAlgorithm(algorithm).withLayout(layout);
  }

  /**
   * Compares all-reduces over communicators of all ranks, or of those that this process has, with
   * those that options predict for all; returns how many differ.
   */
  static int compare(
      Child child, CommunicatorConfig config, List<Communicator> actual, ReferenceOptions options)
      throws IOException {
    int ranks = actual.getFirst().size();
    child.fact("algorithm", options.algorithm().name().toLowerCase(Locale.ROOT));
    child.fact("layout", options.layout().toString());
    try (Backend reference = ReferenceBackend.open(ranks, options)) {
      List<Communicator> predicted =
          reference.newCommunicators(config, IntStream.range(0, ranks).toArray());
      try (Ranks found = Ranks.of(actual);
          Ranks expected = Ranks.of(predicted)) {
        Prediction prediction = new Prediction(child, found, expected);
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
    COMBINES.forEach(combine -> results.put(combine, new EnumMap<>(DataType.class)));
    for (DataType type : DataType.values()) {
      Map<Call.Combine, Integer> wrong = new EnumMap<>(Call.Combine.class);
      for (long count : child.quick ? FEW_COUNTS : COUNTS) {
        compare(type, count, wrong);
      }
      for (Call.Combine combine : COMBINES) {
        Integer ranks = wrong.get(combine);
        String result = ranks == null ? "left out" : ranks == 0 ? "ok" : "**" + ranks + "**";
        results.get(combine).put(type, result);
      }
      child.saveUnfinished("compared " + type);
    }
    finish(results);
  }

  /**
   * Adds for each operator how many ranks have other bits than predicted; none if it is refused.
   */
  private void compare(DataType type, long count, Map<Call.Combine, Integer> wrong) {
    int ranks = predicted.comms().size();
    Call call = new Call(Operation.ALL_REDUCE, COMBINES.getFirst(), type, ranks, count, 0, true);
    List<MemorySegment> inputs =
        IntStream.range(0, ranks).mapToObj(rank -> Inputs.depending(call, rank)).toList();
    try (Data found = new Data(actual, call);
        Data expected = new Data(predicted, call)) {
      for (Call.Combine combine : COMBINES) {
        Call current = new Call(Operation.ALL_REDUCE, combine, type, ranks, count, 0, true);
        try {
          List<MemorySegment> results = found.allReduce(combine, inputs);
          wrong.merge(
              combine,
              differences(current, results, expected.allReduce(combine, inputs)),
              Integer::sum);
        } catch (IllegalArgumentException tooOldAGpu) {
          wrong.remove(combine);
        }
      }
    }
  }

  private int differences(Call call, List<MemorySegment> found, List<MemorySegment> expected) {
    int wrong = 0;
    for (int i = 0; i < found.size(); i++) {
      int rank = actual.comms().get(i).rank();
      compared++;
      long at = found.get(i).mismatch(expected.get(rank));
      if (at >= 0) {
        wrong++;
        note(call, rank, at / call.type().bytes(), found.get(i), expected.get(rank));
        different++;
      }
    }
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

  /** A buffer for each of some ranks. */
  private static final class Data implements AutoCloseable {
    private final Ranks ranks;
    private final List<Buffer> buffers = new ArrayList<>();

    Data(Ranks ranks, Call call) {
      this.ranks = ranks;
      ranks.comms().forEach(comm -> buffers.add(comm.newBuffer(call.type(), call.count())));
    }

    /**
     * Reduces the inputs, which are by rank, in one group and returns the results of these ranks.
     */
    List<MemorySegment> allReduce(Call.Combine combine, List<MemorySegment> inputs) {
      for (int i = 0; i < buffers.size(); i++) {
        buffers
            .get(i)
            .copyFromAsync(inputs.get(ranks.comms().get(i).rank()), ranks.streams().get(i));
      }
      Group.run(
          () -> {
            for (int i = 0; i < buffers.size(); i++) {
              Buffer data = buffers.get(i);
              ranks.comms().get(i).allReduce(data, data, combine.op(), ranks.streams().get(i));
            }
          });
      List<MemorySegment> results = new ArrayList<>();
      for (int i = 0; i < buffers.size(); i++) {
        results.add(MemorySegment.ofArray(new byte[Math.toIntExact(buffers.get(i).byteSize())]));
        buffers.get(i).copyTo(results.getLast(), ranks.streams().get(i));
        ranks.streams().get(i).synchronize();
      }
      return results;
    }

    @Override
    public void close() {
      buffers.forEach(Buffer::close);
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
