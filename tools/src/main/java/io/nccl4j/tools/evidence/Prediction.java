package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.internal.schedule.NcclGraph;
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
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
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

  private static final long[] FEW_COUNTS = {7, 1025};

  /** The unit in which NCCL 2.23 to 2.28 divides elements among channels. */
  private static final int OLDER_CELL_BYTES = 8 << 10;

  private static final List<Call.Combine> COMBINES =
      List.of(
          Call.Combine.SUM,
          Call.Combine.PROD,
          Call.Combine.MAX,
          Call.Combine.MIN,
          Call.Combine.AVG);

  private final Child child;
  private final List<Endpoint> actual;
  private final List<Endpoint> predicted;
  private final Map<String, Map<DataType, String>> results = new LinkedHashMap<>();
  private int compared;
  private int different;

  private Prediction(Child child, List<Endpoint> actual, List<Endpoint> predicted) {
    this.child = child;
    this.actual = actual;
    this.predicted = predicted;
  }

  static void run(Child child) throws IOException, Child.NotPossible {
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));
    try (Backend backend = Backend.nccl()) {
      if (!child.severalProcesses()) {
        int devices = backend.devices().size();
        int[] shared = IntStream.range(0, child.size).map(rank -> rank % devices).toArray();
        try (CommunicatorList ranks = backend.newCommunicators(shared, config)) {
          compare(child, config, ranks, backend);
        }
      } else {
        try (Communicator rank = child.communicator(backend, config)) {
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

  /** Runs an all-reduce: each rank has written its part of the log before its first operation. */
  private static void awaitLogs(List<Communicator> comms) {
    List<Endpoint> ranks = comms.stream().map(Endpoint::new).toList();
    int size = comms.getFirst().size();
    Call call = Call.allReduce(Call.Combine.SUM, DataType.INT32, size, 1);
    List<MemorySegment> inputs = inputs(call);
    allReduce(ranks, call, inputs);
    ranks.forEach(Endpoint::close);
  }

  private static List<MemorySegment> inputs(Call call) {
    return IntStream.range(0, call.ranks())
        .mapToObj(rank -> Inputs.orderDependent(call, rank))
        .toList();
  }

  /** Reduces the inputs of all ranks in one group; returns the results of some ranks. */
  private static List<MemorySegment> allReduce(
      List<Endpoint> ranks, Call call, List<MemorySegment> inputs) {
    List<Buffer> buffers = new ArrayList<>();
    Group.run(() -> ranks.forEach(rank -> buffers.add(rank.start(call, inputs.get(rank.rank())))));
    List<MemorySegment> results = new ArrayList<>();
    for (int i = 0; i < ranks.size(); i++) {
      results.add(ranks.get(i).download(buffers.get(i)));
    }
    ranks.forEach(Endpoint::free);
    return results;
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
        known(
            algorithm == Algorithm.RING
                ? graph.ringLayout(ranks, protocol)
                : graph.treeLayout(ranks, protocol),
            graph);
    if (!Machine.atLeast(nccl, 2, 23) && layout.channels() > 1) {
      throw new Child.NotPossible("NCCL before 2.23 divides data among channels in another way");
    }
    if (!Machine.atLeast(nccl, 2, 29)) {
      layout = layout.withCellBytes(OLDER_CELL_BYTES);
    }
    return ReferenceOptions.defaults().withAlgorithm(algorithm).withLayout(layout);
  }

  private static Layout known(Optional<Layout> layout, NcclGraph graph) throws Child.NotPossible {
    if (layout.isEmpty()) {
      throw new Child.NotPossible("the reference has no layout for what NCCL's log has: " + graph);
    }
    return layout.get();
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
            reference.newCommunicators(IntStream.range(0, ranks).toArray(), config)) {
      List<Endpoint> found = actual.stream().map(Endpoint::new).toList();
      List<Endpoint> expected = predicted.stream().map(Endpoint::new).toList();
      Prediction prediction = new Prediction(child, found, expected);
      prediction.compareAll();
      prediction.finish();
      found.forEach(Endpoint::close);
      expected.forEach(Endpoint::close);
      return prediction.different;
    }
  }

  private void compareAll() throws IOException {
    COMBINES.forEach(combine -> results.put(combine.label(), new EnumMap<>(DataType.class)));
    for (DataType type : DataType.values()) {
      Map<Call.Combine, Integer> wrong = new EnumMap<>(Call.Combine.class);
      for (long count : child.quick ? FEW_COUNTS : COUNTS) {
        compare(type, count, wrong);
      }
      wrong.forEach(
          (combine, ranks) ->
              results.get(combine.label()).put(type, ranks == 0 ? "ok" : "**" + ranks + "**"));
      child.saveUnfinished("compared " + type);
    }
  }

  /** Adds the number of ranks with unpredicted bits for each operator that the GPU accepts. */
  private void compare(DataType type, long count, Map<Call.Combine, Integer> wrong) {
    int ranks = predicted.size();
    List<MemorySegment> inputs = inputs(Call.allReduce(COMBINES.getFirst(), type, ranks, count));
    for (Call.Combine combine : COMBINES) {
      Call call = Call.allReduce(combine, type, ranks, count);
      List<MemorySegment> found;
      try {
        found = allReduce(actual, call, inputs);
      } catch (IllegalArgumentException tooOldAGpu) {
        if (!type.float8()) {
          throw tooOldAGpu;
        }
        actual.forEach(Endpoint::free);
        continue;
      }
      wrong.merge(
          combine, differences(call, found, allReduce(predicted, call, inputs)), Integer::sum);
    }
  }

  private int differences(Call call, List<MemorySegment> found, List<MemorySegment> expected) {
    int wrong = 0;
    for (int i = 0; i < found.size(); i++) {
      int rank = actual.get(i).rank();
      MemorySegment right = expected.get(rank);
      long at = found.get(i).mismatch(right);
      compared++;
      if (at >= 0) {
        if (different == 0) {
          long element = at / call.type().bytes();
          child.note(
              "rank %d: %s: element %d is %s, predicted %s"
                  .formatted(
                      rank,
                      call,
                      element,
                      call.element(found.get(i), element),
                      call.element(right, element)));
        }
        wrong++;
        different++;
      }
    }
    return wrong;
  }

  private void finish() {
    child.table(Table.ofTypes("All-reduces compared with the prediction", results));
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
