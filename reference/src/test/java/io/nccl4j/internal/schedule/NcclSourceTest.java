package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Compares all steps with those of NCCL's own functions. The functions are extracted from NCCL's
 * source, compiled for the host and run with primitives that log their calls ({@code
 * src/test/native/steps.cc}). Requires a checkout of NCCL 2.30 in {@code NCCL_SOURCE}, since this
 * repository contains none of its source.
 */
class NcclSourceTest {
  private static final long SEED = Long.getLong("test.seed", 20261121);
  private static final int RUNS = 300;
  private static final List<Protocol> PROTOCOLS =
      List.of(Protocol.LL, Protocol.LL128, Protocol.SIMPLE);
  private static final List<TreePattern> PATTERNS =
      List.of(TreePattern.BALANCED_TREE, TreePattern.SPLIT_TREE, TreePattern.TREE);

  @TempDir Path folder;

  /** One all-reduce; {@link #line} is the input of the test's program. */
  private record Run(
      boolean ring,
      int ranks,
      int channels,
      Protocol protocol,
      long count,
      int elementBytes,
      int chunkGrains,
      int ranksPerNode,
      TreePattern pattern,
      List<Integer> order) {
    static Run random(Random random) {
      int ranks = random.nextInt(4) == 0 ? random.nextInt(18, 65) : random.nextInt(2, 18);
      List<Integer> order = new ArrayList<>(IntStream.range(0, ranks).boxed().toList());
      if (random.nextBoolean()) {
        Collections.shuffle(order, random);
      }
      Protocol protocol = PROTOCOLS.get(random.nextInt(PROTOCOLS.size()));
      int grains = random.nextInt(3) == 0 ? 300 : random.nextInt(1, 8);
      int elementBytes = 1 << random.nextInt(4);
      int channels = random.nextInt(1, 9);
      // A few loops on each channel, or so few elements that most chunks are empty.
      long loop = (long) ranks * grains * protocol.grainBytes() / elementBytes;
      long maxCount = random.nextInt(4) == 0 ? 100 : Math.min(500_000, 4 * loop * channels);
      return new Run(
          random.nextBoolean(),
          ranks,
          channels,
          protocol,
          random.nextLong(1, maxCount + 1),
          elementBytes,
          grains,
          random.nextInt(1, 6),
          PATTERNS.get(random.nextInt(PATTERNS.size())),
          order);
    }

    private int chunkBytes() {
      return chunkGrains * protocol.grainBytes();
    }

    String line() {
      return Stream.concat(
              Stream.of(
                  ring ? "ring" : "tree",
                  ranks,
                  channels,
                  PROTOCOLS.indexOf(protocol),
                  count,
                  elementBytes,
                  chunkBytes(),
                  ranksPerNode,
                  1 + PATTERNS.indexOf(pattern)),
              order.stream())
          .map(Object::toString)
          .collect(Collectors.joining(" "));
    }

    /** Returns the ring's chunk size, of which the largest chunk of a tree is a part. */
    private int ringChunkBytes() {
      return !ring && protocol == Protocol.SIMPLE ? 4 * chunkBytes() : chunkBytes();
    }

    Schedule schedule() {
      Layout layout =
          Layout.defaults()
              .withChannels(channels)
              .withProtocol(protocol)
              .withChunkBytes(ringChunkBytes())
              .withSliceBytes(1 << 20)
              .withRingOrders(List.of(order))
              .withTreeOrders(List.of(order))
              .withNodes(ranksPerNode, pattern);
      return ring
          ? new RingSchedule(layout, ranks, count, elementBytes)
          : new TreeSchedule(layout, ranks, count, elementBytes);
    }

    Stream<String> steps() {
      List<String> steps = new ArrayList<>();
      schedule().walk(step -> steps.add(text(step)));
      return Stream.concat(Stream.of(line()), steps.stream().sorted());
    }

    private static String text(Step step) {
      return "%d %d %s %d %d from%s to%s"
          .formatted(
              step.channel(),
              step.rank(),
              step.action(),
              step.begin(),
              step.count(),
              list(step.from()),
              list(step.to()));
    }

    private static String list(List<Integer> ranks) {
      return ranks.stream().map(rank -> " " + rank).collect(Collectors.joining());
    }
  }

  @Test
  void stepsAreThoseOfNccl() throws IOException, InterruptedException {
    String checkout = System.getenv("NCCL_SOURCE");
    assumeTrue(checkout != null, "NCCL_SOURCE does not name a checkout of NCCL");
    extract(Path.of(checkout, "src"));
    Random random = new Random(SEED);
    List<Run> runs = Stream.generate(() -> Run.random(random)).limit(RUNS).toList();
    Path lines = folder.resolve("runs");
    Files.write(lines, runs.stream().map(Run::line).toList());
    Path found = folder.resolve("steps.txt");
    start(compile(), lines, found);
    try (Stream<String> ofNccl = Files.lines(found)) {
      var expected = ofNccl.iterator();
      runs.stream()
          .flatMap(Run::steps)
          .forEach(step -> assertEquals(expected.hasNext() ? expected.next() : "", step));
      assertTrue(!expected.hasNext(), "NCCL has more steps");
    }
  }

  private String compile() throws IOException, InterruptedException {
    String program = folder.resolve("steps").toString();
    Path source = Path.of(System.getProperty("basedir", "."), "src/test/native/steps.cc");
    Path log = folder.resolve("log");
    Process process =
        new ProcessBuilder(
                "g++", "-std=c++17", "-O1", "-w", "-I", folder + "", "-o", program, source + "")
            .redirectErrorStream(true)
            .redirectOutput(log.toFile())
            .start();
    assertTrue(process.waitFor(2, TimeUnit.MINUTES), "g++ does not end");
    assertEquals(0, process.exitValue(), () -> read(log));
    return program;
  }

  private static void start(String program, Path from, Path to)
      throws IOException, InterruptedException {
    Process process =
        new ProcessBuilder(program)
            .redirectInput(from.toFile())
            .redirectOutput(to.toFile())
            .start();
    assertTrue(process.waitFor(2, TimeUnit.MINUTES), "the program does not end");
    assertEquals(0, process.exitValue());
  }

  private static String read(Path file) {
    try {
      return Files.readString(file);
    } catch (IOException e) {
      return e.toString();
    }
  }

  private void extract(Path source) throws IOException {
    Path device = source.resolve("device/all_reduce.h");
    extract(device, "namespace {", "template <typename T, typename RedOp>", "nccl_all_reduce");
    Path header = source.resolve("include/device.h");
    String grain = "__host__ __device__ constexpr int ncclProtoGrainSize";
    extract(header, grain, "struct alignas(16) ncclDevWorkCollReg", "nccl_parts");
    Path enqueue = source.resolve("enqueue.cc");
    extract(enqueue, "    // Ring/Tree channel tuning", "  }", "nccl_channels");
    String traffic = "      int trafficPerByte = ncclFuncTrafficPerByte(task->func";
    extract(enqueue, traffic, "      // Update number of channels", "nccl_division");
    String treeOfLl128 = "  } else if (info->algorithm == NCCL_ALGO_TREE && info->protocol";
    extract(
        enqueue, treeOfLl128, "  } else if (info->func == ncclFuncAllGather", "nccl_tree_chunk");
    extract(source.resolve("graph/trees.cc"), "ncclResult_t ncclGetBtree", null, "nccl_trees");
    Path connect = source.resolve("graph/connect.cc");
    String collNet = "static ncclResult_t connectCollNet";
    extract(connect, "static ncclResult_t setTreeUp", collNet, "nccl_connect");
    extract(connect, "        int parentIndex = 0;", "      }", "nccl_preset");
  }

  /** Copies the lines from the first that begins with {@code from} to before {@code to}. */
  private void extract(Path file, String from, String to, String name) throws IOException {
    List<String> part =
        Files.readAllLines(file).stream().dropWhile(line -> !line.startsWith(from)).toList();
    assertTrue(!part.isEmpty(), file + " has no line that begins with " + from);
    if (to != null) {
      part = part.stream().takeWhile(line -> !line.startsWith(to)).toList();
    }
    Files.write(folder.resolve(name + ".inc"), part);
  }
}
