package io.nccl4j.verification;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.schedule.NcclGraph;
import io.nccl4j.internal.schedule.RingSchedule;
import io.nccl4j.internal.schedule.Schedule;
import io.nccl4j.internal.schedule.Step;
import io.nccl4j.internal.schedule.TreeSchedule;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.plugin.NcclAlgorithm;
import io.nccl4j.plugin.NcclEnvironment;
import io.nccl4j.reference.Algorithm;
import io.nccl4j.reference.ReferenceOptions;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;
import org.apache.logging.log4j.Logger;

/** The order of NCCL's additions, as far as {@code docs/prediction.md} predicts it. */
final class NcclOrder {
  private static final Logger LOGGER = Loggers.of(NcclOrder.class);
  private static final String LOG = "NCCL_DEBUG_FILE";
  private static final long MOST_LOG_BYTES = 64 << 20;

  /** With these NCCL has other chunks than a layout by default; the order in a tree stays. */
  private static final List<String> CHUNK_SIZES =
      List.of("NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE");

  private final NcclGraph graph;
  private final int ranks;

  /**
   * Creates the orders of a communicator.
   *
   * @param log NCCL's lines about this communicator, from all ranks
   */
  NcclOrder(List<String> log, int ranks) {
    this.graph = NcclGraph.of(log);
    this.ranks = ranks;
  }

  /** Returns NCCL's log of this process; empty unless it is in a file. */
  static List<String> log() {
    String name = NcclEnvironment.value(LOG).orElse("");
    if (name.isEmpty()) {
      return List.of();
    }
    Path path = Path.of(name).toAbsolutePath();
    String file =
        path.getFileName()
            .toString()
            .replace("%p", Long.toString(ProcessHandle.current().pid()))
            .replace("%h", "\\E.*\\Q");
    Pattern pattern = Pattern.compile("\\Q" + file + "\\E");
    List<String> lines = new ArrayList<>();
    try (DirectoryStream<Path> logs =
        Files.newDirectoryStream(
            path.getParent(), each -> pattern.matcher(each.getFileName().toString()).matches())) {
      for (Path log : logs) {
        // Reading a pipe or a terminal, such as /dev/stderr, would wait and take what others read.
        if (Files.isRegularFile(log) && Files.size(log) <= MOST_LOG_BYTES) {
          lines.addAll(Files.readAllLines(log, StandardCharsets.ISO_8859_1));
        } else {
          LOGGER.warn("NCCL's log {} is not a file of at most 64 MiB; it is not read", log);
        }
      }
    } catch (IOException e) {
      LOGGER.warn("NCCL's log cannot be read from {}", path, e);
    }
    return lines;
  }

  /** Returns whether every order of combining the elements has the same result. */
  static boolean irrelevant(Operation operation, DataType type, int operator) {
    return operation == Operation.ALL_GATHER
        || !type.floating()
        || operator == ReduceOp.MAX.code()
        || operator == ReduceOp.MIN.code();
  }

  /** Returns the options with which the reference has NCCL's order, or empty. */
  Optional<ReferenceOptions> options(
      Operation operation, DataType type, int operator, long count, NcclChoice choice) {
    boolean fused = // A GPU may multiply and add with one rounding.
        operator == ReduceOp.AVG.code() && !type.float8() && Integer.bitCount(ranks) != 1;
    boolean ring = choice != null && choice.algorithm() == NcclAlgorithm.RING;
    boolean otherChunks =
        ring && CHUNK_SIZES.stream().anyMatch(name -> NcclEnvironment.value(name).isPresent());
    if (choice == null || fused || otherChunks) {
      return Optional.empty();
    }
    Protocol protocol = Protocol.valueOf(choice.protocol().name());
    Optional<Layout> layout =
        switch (choice.algorithm()) {
          case RING -> graph.ringLayout(ranks, protocol);
          case TREE -> graph.treeLayout(ranks, protocol);
          default -> Optional.empty();
        };
    Optional<ReferenceOptions> options =
        layout.map(
            known ->
                ReferenceOptions.defaults()
                    .withAlgorithm(ring ? Algorithm.RING : Algorithm.TREE)
                    .withLayout(known));
    return options.filter(
        known ->
            operation == Operation.ALL_REDUCE
                ? schedule(known, count, type).channels() == choice.channels()
                : ring && new HashSet<>(known.layout().ringOrders()).size() == 1);
  }

  private Schedule schedule(ReferenceOptions options, long count, DataType type) {
    return options.algorithm() == Algorithm.RING
        ? new RingSchedule(options.layout(), ranks, count, type.bytes())
        : new TreeSchedule(options.layout(), ranks, count, type.bytes());
  }

  /** Returns the first step of an all-reduce that moves an element; empty for one rank. */
  Optional<Step> step(ReferenceOptions options, long count, DataType type, long element) {
    List<Step> found = new ArrayList<>();
    schedule(options, count, type)
        .walk(
            step -> {
              if (found.isEmpty() && step.begin() <= element && element < step.end()) {
                found.add(step);
              }
            });
    return found.stream().findFirst();
  }
}
