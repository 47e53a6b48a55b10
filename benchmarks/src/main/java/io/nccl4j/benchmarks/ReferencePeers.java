package io.nccl4j.benchmarks;

import io.nccl4j.benchmarks.PeerProgram.Cell;
import io.nccl4j.benchmarks.PeerProgram.Kind;
import io.nccl4j.benchmarks.PeerProgram.Measurement;
import io.nccl4j.benchmarks.PeerProgram.WrongResultException;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.StringJoiner;
import java.util.stream.Stream;

/**
 * Compares the reference's all-reduce with that of its peers in one run.
 *
 * <p>A peer with several settings first runs a short trial of each; the settings that are close to
 * the best at any size take part. Then each round runs every program once, in turn, so that a
 * temporary disturbance of the machine affects all of them. The result of a program is the median
 * of its rounds, and the result of a peer at a size is that of its best program.
 */
public final class ReferencePeers {
  static final List<Integer> RANKS = List.of(2, 4);
  static final List<String> MODES =
      Stream.of(ReferenceRanks.Mode.values()).map(Object::toString).toList();

  private static final List<Sizing> MEMORY_SIZES =
      List.of(
          new Sizing(1 << 10, 10_000, 9, 10_000),
          new Sizing(64 << 10, 3_000, 9, 2_000),
          new Sizing(1 << 20, 1_000, 9, 200),
          new Sizing(16 << 20, 40, 9, 10),
          new Sizing(128 << 20, 3, 5, 2));
  private static final List<Sizing> TCP_SIZES =
      List.of(
          new Sizing(1 << 10, 300, 9, 150),
          new Sizing(64 << 10, 200, 9, 100),
          new Sizing(1 << 20, 200, 9, 40),
          new Sizing(16 << 20, 10, 9, 3),
          new Sizing(128 << 20, 2, 5, 1));

  private static final List<Sizing> LARGE = List.of(new Sizing(16 << 20, 40, 9, 3));
  private static final List<Sizing> TYPES_SIZES =
      List.of(new Sizing(1 << 20, 0, 9, 100), new Sizing(16 << 20, 0, 9, 5));

  /** A program takes part if its trial, at its best size, is within this factor of the best. */
  private static final double NEAR = 1.1;

  private static final int TRIAL = 4;

  /** The parts of the comparison that {@code --rows} selects. */
  enum Row {
    IN_PROCESS(MEMORY_SIZES, RANKS, Kind.OPEN_MPI, Kind.C_THREADS, Kind.REFERENCE, Kind.RING),
    SHARED_MEMORY(MEMORY_SIZES, RANKS, Kind.OPEN_MPI, Kind.SHARED_MEMORY),
    TCP(TCP_SIZES, RANKS, Kind.GLOO, Kind.TCP),
    MANY_RANKS(LARGE, List.of(16), Kind.REFERENCE),
    TYPES(TYPES_SIZES, List.of(2), Kind.TYPES);

    private final List<Sizing> sizes;
    private final List<Integer> ranks;
    private final List<Kind> kinds;

    Row(List<Sizing> sizes, List<Integer> ranks, Kind... kinds) {
      this.sizes = sizes;
      this.ranks = ranks;
      this.kinds = List.of(kinds);
    }

    List<Sizing> sizes() {
      return sizes;
    }

    List<Integer> ranks() {
      return ranks;
    }

    List<Kind> kinds() {
      return kinds;
    }

    /** Returns the name that {@code --rows} takes. */
    @Override
    public String toString() {
      return name().toLowerCase(Locale.ROOT).replace('_', '-');
    }

    /** Parses the value of {@code --rows}; an empty value selects all rows. */
    static Set<Row> parse(String names) {
      Set<Row> rows = EnumSet.noneOf(Row.class);
      if (names.isEmpty()) {
        return EnumSet.allOf(Row.class);
      }
      for (String name : names.split(",", -1)) {
        rows.add(valueOf(name.toUpperCase(Locale.ROOT).replace('-', '_')));
      }
      return rows;
    }
  }

  private final Measurements measurements = new Measurements();
  private final Map<PeerProgram, Map<Cell, Measurement>> trials = new HashMap<>();
  private final Map<PeerProgram, List<Sizing>> sizes = new LinkedHashMap<>();

  private final boolean quick;

  private ReferencePeers(boolean quick) {
    this.quick = quick;
  }

  /**
   * Runs all programs and compares them.
   *
   * @param args {@code --quick}, {@code --rounds N}, {@code --rows NAME,...}, {@code --peers
   *     FOLDER}
   * @throws IOException if a program fails
   * @throws InterruptedException if this thread is interrupted
   */
  public static void main(String[] args) throws IOException, InterruptedException {
    List<String> options = new ArrayList<>(List.of(args));
    boolean quick = options.remove("--quick");
    int rounds = Integer.parseInt(Calls.takeOption(options, "--rounds", quick ? "1" : "3"));
    Set<Row> rows = Row.parse(Calls.takeOption(options, "--rows", ""));
    String folder = Calls.takeOption(options, "--peers", "target/peers");
    PeerPrograms all = new PeerPrograms(Path.of(folder));
    if (!options.isEmpty()) {
      throw new IllegalArgumentException("unknown options: " + options);
    }
    // If a signal ends this process, the programs that it runs end too.
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> ProcessHandle.current().descendants().forEach(ProcessHandle::destroy)));
    ReferencePeers peers = new ReferencePeers(quick);
    System.err.println("trial of all settings");
    peers.choose(all, rows);
    for (int round = 1; round <= rounds; round++) {
      System.err.printf("round %d of %d%n", round, rounds);
      peers.round(round);
    }
    System.out.print(new ReferenceReport(peers.measurements, rows, rounds).text());
  }

  /** Selects the programs that take part, in the order in which they run. */
  private void choose(PeerPrograms all, Set<Row> rows) throws IOException, InterruptedException {
    for (Row row : rows) {
      for (int ranks : row.ranks) {
        for (Kind kind : row.kinds) {
          for (PeerProgram program : near(all.of(kind, ranks), row.sizes)) {
            sizes.putIfAbsent(program, quick ? shortened(row.sizes) : row.sizes);
          }
        }
      }
    }
  }

  /** Returns the candidates; if only the best counts, those close to the best in a trial. */
  private List<PeerProgram> near(List<PeerProgram> candidates, List<Sizing> all)
      throws IOException, InterruptedException {
    if (candidates.size() < 2 || !candidates.getFirst().kind().bestCounts()) {
      return candidates;
    }
    Measurements trial = new Measurements();
    for (PeerProgram candidate : candidates) {
      if (!trials.containsKey(candidate)) {
        trials.put(candidate, run(candidate, MODES.subList(0, 1), shortened(all)));
      }
      trial.add(candidate, trials.get(candidate));
    }
    return candidates.stream()
        .filter(candidate -> !measurements.leftOut().contains(candidate))
        .filter(candidate -> trial.near(candidate, NEAR))
        .toList();
  }

  private static List<Sizing> shortened(List<Sizing> sizes) {
    return sizes.stream()
        .map(
            size ->
                new Sizing(
                    size.bytes(),
                    Math.max(1, size.warmUps() / TRIAL),
                    Math.max(2, size.batches() / TRIAL),
                    Math.max(1, size.operations() / TRIAL)))
        .toList();
  }

  private void round(int round) throws IOException, InterruptedException {
    for (Map.Entry<PeerProgram, List<Sizing>> entry : sizes.entrySet()) {
      PeerProgram program = entry.getKey();
      // A program of types runs only once: it compares its reductions in turn within one run.
      boolean again = program.kind() != Kind.TYPES || round == 1;
      if (again && !measurements.leftOut().contains(program)) {
        measurements.add(program, run(program, modes(program), entry.getValue()));
      }
    }
  }

  /** Runs a program; excludes it and returns no results if it reports a wrong result. */
  private Map<Cell, Measurement> run(PeerProgram program, List<String> modes, List<Sizing> sizes)
      throws IOException, InterruptedException {
    try {
      return measured(program, modes, sizes);
    } catch (WrongResultException e) {
      System.err.println(e.getMessage());
      measurements.leaveOut(program);
      return Map.of();
    }
  }

  private static Map<Cell, Measurement> measured(
      PeerProgram program, List<String> modes, List<Sizing> sizes)
      throws IOException, InterruptedException {
    Map<Cell, Measurement> results = program.run(modes, sizes);
    StringJoiner line = new StringJoiner(" ", program + ":", "");
    for (String mode : modes) {
      line.add(" " + mode);
      for (Sizing size : sizes) {
        double microseconds = results.get(new Cell(size.bytes(), mode)).microseconds();
        line.add(String.format(Locale.ROOT, "%.2f", microseconds));
      }
    }
    System.err.println(line);
    return results;
  }

  private static List<String> modes(PeerProgram program) {
    return program.kind() == Kind.TYPES ? ReferenceReport.reductions(program) : MODES;
  }
}
