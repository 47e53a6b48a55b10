package io.nccl4j.benchmarks;

import io.nccl4j.DataType;
import io.nccl4j.benchmarks.PeerProgram.Kind;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** The available programs of each kind. */
final class PeerPrograms {
  /** Huge pages for large buffers, in all programs, as in scripts/lib/java.sh. */
  private static final Map<String, String> HUGE_PAGES =
      Map.of("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

  /** The Open MPI parameters of each setting: its all-reduce algorithms and transports. */
  private static final Map<String, Map<String, String>> OPEN_MPI = openMpiSettings();

  private static final List<String> GLOO =
      List.of("ring", "bcube", "old_ring", "ring_chunked", "halving_doubling");

  private static final List<String> THREADS = List.of("fused", "tiles");

  private final Path folder;

  /** Uses the C programs in a folder; missing ones are left out. */
  PeerPrograms(Path folder) {
    this.folder = folder;
  }

  private static Map<String, Map<String, String>> openMpiSettings() {
    Map<String, Map<String, String>> settings = new LinkedHashMap<>();
    settings.put("default", Map.of());
    settings.put("segmented ring", tuned(5));
    settings.put("linear", tuned(1));
    settings.put("reduce and broadcast", tuned(2));
    settings.put("recursive doubling", tuned(3));
    settings.put("ring", tuned(4));
    settings.put("Rabenseifner", tuned(6));
    Map<String, String> segments = new LinkedHashMap<>(tuned(5));
    segments.put("OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize", "65536");
    settings.put("segmented ring, 64 KiB", segments);
    settings.put("coll/sm", Map.of("OMPI_MCA_coll_sm_priority", "100"));
    settings.put("no CMA", Map.of("OMPI_MCA_btl_vader_single_copy_mechanism", "none"));
    return settings;
  }

  private static Map<String, String> tuned(int algorithm) {
    return Map.of(
        "OMPI_MCA_coll_tuned_use_dynamic_rules",
        "1",
        "OMPI_MCA_coll_tuned_allreduce_algorithm",
        String.valueOf(algorithm));
  }

  /** Returns the programs of a kind; empty if it was not built. */
  List<PeerProgram> of(Kind kind, int ranks) {
    return switch (kind) {
      case OPEN_MPI -> openMpi(ranks);
      case GLOO -> compiled(kind, "gloo", ranks, GLOO);
      case C_THREADS -> compiled(kind, "threads", ranks, THREADS);
      case REFERENCE -> List.of(reference(kind, ReferenceRanks.class, ranks, "auto", "none"));
      case RING -> List.of(reference(kind, ReferenceRanks.class, ranks, "ring", "none"));
      case SHARED_MEMORY ->
          List.of(reference(kind, ReferenceProcesses.class, ranks, "auto", "auto"));
      case TCP -> List.of(reference(kind, ReferenceProcesses.class, ranks, "auto", "tcp"));
      case TYPES -> types();
    };
  }

  private List<PeerProgram> openMpi(int ranks) {
    Path program = folder.resolve("open_mpi");
    List<PeerProgram> programs = new ArrayList<>();
    if (Files.isExecutable(program)) {
      OPEN_MPI.forEach(
          (setting, parameters) -> {
            Map<String, String> environment = new LinkedHashMap<>(HUGE_PAGES);
            environment.putAll(parameters);
            // Without these it refuses to run as root, the usual user in a container.
            environment.put("OMPI_ALLOW_RUN_AS_ROOT", "1");
            environment.put("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            List<String> command =
                List.of(
                    "mpirun", "--oversubscribe", "-n", String.valueOf(ranks), program.toString());
            programs.add(new PeerProgram(Kind.OPEN_MPI, ranks, setting, command, environment));
          });
    }
    return programs;
  }

  private List<PeerProgram> compiled(Kind kind, String name, int ranks, List<String> settings) {
    Path program = folder.resolve(name);
    if (!Files.isExecutable(program)) {
      return List.of();
    }
    return settings.stream()
        .map(
            setting ->
                new PeerProgram(
                    kind,
                    ranks,
                    setting.replace('_', ' '),
                    List.of(program.toString(), String.valueOf(ranks), setting),
                    HUGE_PAGES))
        .toList();
  }

  private static PeerProgram reference(
      Kind kind, Class<?> main, int ranks, String algorithm, String transport) {
    List<String> command = java(main);
    command.addAll(List.of(String.valueOf(ranks), algorithm, transport));
    return new PeerProgram(kind, ranks, "", command, HUGE_PAGES);
  }

  /**
   * Returns one program per type, so that code compiled for one type does not slow down another.
   */
  private static List<PeerProgram> types() {
    return Stream.of(DataType.values())
        .map(
            type ->
                new PeerProgram(Kind.TYPES, 2, type.name(), java(ReferenceTypes.class), HUGE_PAGES))
        .toList();
  }

  /** Returns the command line of a class, with the JVM options and class path of this process. */
  static List<String> java(Class<?> main) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
    command.add("-cp");
    command.add(System.getProperty("java.class.path"));
    command.add(main.getName());
    return command;
  }
}
