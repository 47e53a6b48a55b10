package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.Operation;
import io.nccl4j.Stream;
import io.nccl4j.nccl.NcclBackend;
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
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * Compares all-reduces of NCCL, pinned to one algorithm and protocol, bit for bit with the results
 * that the reference predicts for the rings and trees in NCCL's log. The sums of the inputs depend
 * on the order. This process has all ranks or one of them, and predicts the results of all.
 */
final class Prediction {
  /** The variable with the path of NCCL's log, one file for each process. */
  static final String LOG = "NCCL_DEBUG_FILE";

  /** The suffix of that path, which NCCL replaces by its process id. */
  static final String PROCESS = ".%p";

  static final String ALGORITHM = "NCCL_ALGO";
  static final String PROTOCOL = "NCCL_PROTO";

  /**
   * With large elements and Simple's chunks, the last takes two loops over a ring of four ranks.
   */
  private static final long[] COUNTS = {7, 4097, 1_100_003};

  /** The unit in which NCCL 2.23 to 2.28 divides elements among channels. */
  private static final int OLDER_CELL_BYTES = 8 << 10;

  private static final long[] FEW_COUNTS = {7, 1025};

  private static final List<Call.Combine> COMBINES =
      List.of(
          Call.Combine.SUM,
          Call.Combine.PROD,
          Call.Combine.MAX,
          Call.Combine.MIN,
          Call.Combine.AVG);

  /** Communicators, each with a stream. */
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
    try (Backend backend = Backend.nccl()) {
      if (child.meet == null) {
        int[] devices = devices(backend, child.size);
        try (CommunicatorList ranks = backend.newCommunicators(devices, config)) {
          compare(child, config, ranks, backend);
        }
      } else {
        try (Peers peers = new Peers(child);
            Communicator rank = peers.communicator(backend, config.withDevice(child.device))) {
          compare(child, config, List.of(rank), backend);
        }
      }
    }
  }

  private static void compare(
      Child child, CommunicatorConfig config, List<Communicator> actual, Backend backend)
      throws IOException, Child.NotPossible {
    awaitLogs(actual);
    String nccl = NcclBackend.of(backend).versionReport().nccl();
    compare(child, config, actual, options(nccl, child.size, System.getenv()));
  }

  private static int[] devices(Backend backend, int ranks) {
    int devices = backend.devices().size();
    return IntStream.range(0, ranks).map(rank -> rank % devices).toArray();
  }

  /** Runs an all-reduce: each rank has written its part of the log before its first operation. */
  private static void awaitLogs(List<Communicator> ranks) {
    int size = ranks.getFirst().size();
    Call call = new Call(Operation.ALL_REDUCE, Call.Combine.SUM, DataType.INT32, size, 1, 0, true);
    MemorySegment input = Inputs.orderDependent(call, 0);
    try (Ranks all = Ranks.of(ranks);
        Data data = new Data(all, call)) {
      data.allReduce(Call.Combine.SUM, Collections.nCopies(size, input));
    }
  }

  /**
   * Returns options for the release of NCCL, the algorithm and protocol that it is pinned to, and
   * the graph in its log.
   */
  static ReferenceOptions options(String nccl, int ranks, Map<String, String> environment)
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
      throw new Child.NotPossible("the library wrote no log to " + LOG);
    }
    NcclGraph graph = NcclGraph.of(lines);
    Protocol protocol = Protocol.valueOf(environment.get(PROTOCOL).toUpperCase(Locale.ROOT));
    Algorithm algorithm = Algorithm.valueOf(environment.get(ALGORITHM).toUpperCase(Locale.ROOT));
    Layout layout =
        algorithm == Algorithm.RING
            ? graph.ringLayout(ranks, protocol)
            : graph.treeLayout(ranks, protocol);
    if (!Machine.atLeast(nccl, 2, 23) && layout.channels() > 1) {
      throw new Child.NotPossible("NCCL before 2.23 divides data among channels in another way");
    }
    if (!Machine.atLeast(nccl, 2, 29)) {
      layout = layout.withCellBytes(OLDER_CELL_BYTES);
    }
    return ReferenceOptions.defaults().withAlgorithm(algorithm).withLayout(layout);
  }

  /**
   * Returns the variables that pin NCCL to one algorithm and protocol, and have it log its rings
   * and trees.
   *
   * @param log the beginning of the names of the log files, one for each process
   */
  static Map<String, String> variables(String algorithm, String protocol, Path log) {
    Map<String, String> variables = new LinkedHashMap<>();
    variables.put("NCCL_NVLS_ENABLE", "0");
    variables.put("NCCL_WIN_ENABLE", "0");
    // Rings with Simple use fewer if all channels together are slow, which changes the number of
    // channels of small data.
    variables.put("NCCL_NTHREADS", "512");
    variables.put(ALGORITHM, algorithm);
    variables.put(PROTOCOL, protocol);
    variables.put("NCCL_DEBUG", "INFO");
    variables.put("NCCL_DEBUG_SUBSYS", "INIT");
    variables.put(LOG, log + PROCESS);
    return variables;
  }

  /**
   * Compares all-reduces on the communicators of this process with the prediction for all ranks;
   * returns the number of results that differ.
   */
  static int compare(
      Child child, CommunicatorConfig config, List<Communicator> actual, ReferenceOptions options)
      throws IOException {
    int ranks = actual.getFirst().size();
    child.fact("algorithm", options.algorithm().name().toLowerCase(Locale.ROOT));
    child.fact("layout", options.layout().toString());
    try (Backend reference = ReferenceBackend.open(ranks, options);
        CommunicatorList predicted =
            reference.newCommunicators(IntStream.range(0, ranks).toArray(), config);
        Ranks found = Ranks.of(actual);
        Ranks expected = Ranks.of(predicted)) {
      Prediction prediction = new Prediction(child, found, expected);
      prediction.compareAll();
      return prediction.different;
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
   * Adds the number of ranks with unpredicted bits for each operator; removes a rejected operator.
   */
  private void compare(DataType type, long count, Map<Call.Combine, Integer> wrong) {
    int ranks = predicted.comms().size();
    Call call = new Call(Operation.ALL_REDUCE, COMBINES.getFirst(), type, ranks, count, 0, true);
    List<MemorySegment> inputs =
        IntStream.range(0, ranks).mapToObj(rank -> Inputs.orderDependent(call, rank)).toList();
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
          "rank %d: %s: element %d is %s, predicted %s"
              .formatted(
                  rank,
                  call,
                  element,
                  CrossCheck.element(call, found, element),
                  CrossCheck.element(call, expected, element)));
    }
  }

  /** A buffer for each rank. */
  private static final class Data implements AutoCloseable {
    private final Ranks ranks;
    private final List<Buffer> buffers = new ArrayList<>();

    Data(Ranks ranks, Call call) {
      this.ranks = ranks;
      ranks.comms().forEach(comm -> buffers.add(comm.newBuffer(call.type(), call.count())));
    }

    /** Reduces the inputs, one for each rank, in one group; returns the results of these ranks. */
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
    child.table(new Table("All-reduces compared with the prediction", columns, rows));
    child.note(
        "Floats have random mantissas and magnitudes, so that the results depend on the order of"
            + " the ranks, the division into channels and chunks and every rounding. Compared bit"
            + " for bit.");
    child.end(
        compared,
        different == 0,
        "%d results compared with the prediction bit for bit, %d differ"
            .formatted(compared, different));
  }
}
