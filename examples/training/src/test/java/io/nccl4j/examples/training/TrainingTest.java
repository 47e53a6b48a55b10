package io.nccl4j.examples.training;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.training.ReducerConfig;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.bytedeco.javacpp.FloatPointer;
import org.bytedeco.pytorch.Scalar;
import org.bytedeco.pytorch.Tensor;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Training on ranks of the reference backend, each with its part of every batch. */
class TrainingTest {
  /** Twelve values a layer, gradients in several buckets. */
  private static final Training.Settings SMALL = new Training.Settings(12, 10, 16, 256, 0.1, 3);

  /**
   * Relative tolerance of the losses: ten steps of 32-bit arithmetic (rounding error 6e-8) that
   * adds the rows' gradients in another order.
   */
  private static final double TOLERANCE = 1e-5;

  /** The state of a rank after training. */
  private record Trained(List<Double> losses, List<Float> parameters) {}

  private static List<Trained> train(int ranks, Training.Settings settings) throws Exception {
    return ReferenceRanks.run(ranks, comm -> train(comm, settings, null));
  }

  private static Trained train(Communicator comm, Training.Settings settings, Checkpoint checkpoint)
      throws IOException {
    // Every rank starts from different parameters.
    Net net = new Net(comm, settings.size(), settings.seed() + comm.rank());
    List<Double> losses =
        new Training(net, settings, checkpoint, (rank, step, loss, nanos) -> {}).run(comm);
    return new Trained(losses, floats(net));
  }

  private static List<Float> floats(Net net) {
    List<Float> all = new ArrayList<>();
    for (Tensor tensor : net.parameters().values()) {
      FloatPointer own = new FloatPointer(tensor.data_ptr());
      for (long i = 0; i < tensor.numel(); i++) {
        all.add(own.get(i));
      }
    }
    return all;
  }

  @Test
  void gradientsOfTwoRanksAreAveraged() throws Exception {
    assertEquals(List.of(3.5f, 3.5f), ReferenceRanks.run(2, DdpSimple::averagedGradient));
  }

  @Test
  void gradientsOfFiveRanksAreAveraged() throws Exception {
    assertEquals(
        List.of(14f, 14f, 14f, 14f, 14f), ReferenceRanks.run(5, DdpSimple::averagedGradient));
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 4})
  void lossesDoNotDependOnTheNumberOfRanks(int ranks) throws Exception {
    List<Double> whole = train(1, SMALL).getFirst().losses();
    assertTrue(whole.getLast() < 0.9 * whole.getFirst(), () -> "nothing is learned: " + whole);
    for (Trained rank : train(ranks, SMALL)) {
      for (int step = 0; step < SMALL.steps(); step++) {
        double expected = whole.get(step);
        assertEquals(expected, rank.losses().get(step), TOLERANCE * expected, "step " + step);
      }
    }
  }

  /**
   * Rank 0 leaves after the third step, and rank 1, if it leaves too, after the next one: the
   * others continue from there with all rows.
   */
  @ParameterizedTest
  @CsvSource({"3, 1", "5, 2"})
  void survivorsFinishTheTraining(int size, int leaving) throws Exception {
    Training.Settings settings = new Training.Settings(12, 8, 60, 256, 0.1, 3);
    List<Trained> ranks =
        ReferenceRanks.run(
            size,
            comm -> {
              int own = comm.rank();
              Net net = new Net(comm, settings.size(), settings.seed() + own);
              IllegalStateException leaves = new IllegalStateException("rank " + own + " leaves");
              Training training =
                  new Training(
                      net,
                      settings,
                      null,
                      (rank, step, loss, nanos) -> {
                        if (own < leaving && step >= 2 + own) {
                          throw leaves;
                        }
                      });
              if (own < leaving) {
                assertSame(
                    leaves, assertThrows(IllegalStateException.class, () -> training.run(comm)));
                comm.abort();
                return null;
              }
              return new Trained(training.run(comm), floats(net));
            });
    List<Double> whole = train(1, settings).getFirst().losses();
    for (Trained survivor : ranks.subList(leaving, size)) {
      assertEquals(ranks.getLast().parameters(), survivor.parameters());
      assertEquals(settings.steps(), survivor.losses().size());
      for (int step = 0; step < settings.steps(); step++) {
        double loss = survivor.losses().get(step);
        // A rank may leave before the others have the average of its last step.
        boolean last = step >= 2 && step < 2 + leaving;
        if (!last || !Double.isNaN(loss)) {
          assertEquals(whole.get(step), loss, TOLERANCE * whole.get(step), "step " + step);
        }
      }
    }
  }

  @Test
  void newStartContinuesFromTheCheckpoint(@TempDir Path folder) throws Exception {
    Checkpoint checkpoint = new Checkpoint(folder.resolve("state"), 2);
    Training.Settings five = new Training.Settings(12, 5, 16, 256, 0.1, 3);
    List<Float> before = train(checkpoint, five).getFirst().parameters();
    assertEquals(Checkpoint.bytes(12), Files.size(checkpoint.file()));
    // The checkpoint after the last step leaves nothing to do.
    assertEquals(before, train(checkpoint, five).getFirst().parameters());
    Training.Settings three = new Training.Settings(12, 3, 16, 256, 0.1, 3);
    ReferenceRanks.run(
        1, comm -> assertThrows(IOException.class, () -> train(comm, three, checkpoint)));
    assertContinued(5, train(checkpoint, SMALL));
    try (Stream<Path> files = Files.list(folder)) {
      assertEquals(List.of(checkpoint.file()), files.toList());
    }
  }

  private static List<Trained> train(Checkpoint checkpoint, Training.Settings settings) {
    return ReferenceRanks.run(2, comm -> train(comm, settings, checkpoint));
  }

  /** Asserts that SMALL was trained from a step, with the losses of a training without a stop. */
  private static void assertContinued(int first, List<Trained> ranks) throws Exception {
    List<Double> whole = train(1, SMALL).getFirst().losses();
    for (Trained rank : ranks) {
      assertEquals(ranks.getFirst().parameters(), rank.parameters());
      for (int step = 0; step < SMALL.steps(); step++) {
        double expected = step < first ? Double.NaN : whole.get(step);
        assertEquals(
            expected, rank.losses().get(step), TOLERANCE * whole.get(step), "step " + step);
      }
    }
  }

  @Test
  void survivorsWithMixedParametersLoadTheCheckpoint(@TempDir Path folder) throws Exception {
    Checkpoint checkpoint = new Checkpoint(folder.resolve("state"), 3);
    train(checkpoint, new Training.Settings(12, 3, 16, 256, 0.1, 3));
    List<Trained> survivors = withoutRankZero(comm -> train(comm, SMALL, checkpoint)).subList(1, 3);
    assertContinued(3, survivors);
  }

  @Test
  void mixedParametersAreRejectedWithoutACheckpoint() {
    withoutRankZero(
        comm -> {
          IllegalStateException thrown =
              assertThrows(IllegalStateException.class, () -> train(comm, SMALL, null));
          assertTrue(thrown.getMessage().startsWith("the parameters of rank 0 may be mixed"));
          return null;
        });
  }

  /** Runs three ranks, of which the first leaves while the others wait for its parameters. */
  private static <T> List<T> withoutRankZero(ReferenceRanks.Body<T> body) {
    return ReferenceRanks.run(
        3,
        comm -> {
          if (comm.rank() > 0) {
            return body.run(comm);
          }
          comm.abort();
          return null;
        });
  }

  @Test
  void differentParametersAreDetectedAtTheEnd() {
    List<String> messages =
        ReferenceRanks.run(
            3,
            comm -> {
              Net net = new Net(comm, SMALL.size(), SMALL.seed());
              Training training =
                  new Training(
                      net,
                      SMALL,
                      null,
                      (rank, step, loss, nanos) -> {
                        if (rank == 1 && step == SMALL.steps() - 1) {
                          FloatPointer bias =
                              new FloatPointer(net.parameters().get("layer3.bias").data_ptr());
                          bias.put(Math.nextUp(bias.get()));
                        }
                      });
              return assertThrows(IllegalStateException.class, () -> training.run(comm))
                  .getMessage();
            });
    Matcher found =
        Pattern.compile(
                "the ranks have different parameters before step 10; their checksums in rank order"
                    + " are \\[(\\w{8}), (?!\\1)\\w{8}, \\1]")
            .matcher(messages.getFirst());
    assertTrue(found.matches(), messages.getFirst());
    assertEquals(List.of(messages.getFirst()), messages.stream().distinct().toList());
  }

  @Test
  void allRanksEndWithTheSameParameters() throws Exception {
    List<Trained> ranks = train(3, new Training.Settings(12, 4, 9, 256, 0.1, 3));
    assertEquals(ranks.get(0).parameters(), ranks.get(1).parameters());
    assertEquals(ranks.get(0).parameters(), ranks.get(2).parameters());
  }

  @Test
  void bucketSizeDoesNotChangeTheParameters() throws Exception {
    Training.Settings one = new Training.Settings(12, 4, 16, 1 << 20, 0.1, 3);
    Training.Settings many = new Training.Settings(12, 4, 16, 1, 0.1, 3);
    assertEquals(train(2, one).getFirst().parameters(), train(2, many).getFirst().parameters());
  }

  @Test
  void bucketsAreLaunchedWhileBackwardStillRuns(@TempDir Path folder) throws Exception {
    Path file = folder.resolve("ranks.jfr");
    try (FlightRecording recording = FlightRecording.start()) {
      train(2, new Training.Settings(64, 3, 16, 1, 0.1, 3));
      recording.write(file);
    }
    for (int step = 0; step < 3; step++) {
      List<RecordedEvent> launched = collectivesLaunchedIn(backward(file, 0, step), file);
      // One bucket for each of six parameters, all of them marked before backward returns.
      assertEquals(6, launched.size(), "step " + step);
    }
  }

  private static RecordedEvent backward(Path file, int rank, int step) throws IOException {
    return RecordingFile.readAllEvents(file).stream()
        .filter(event -> event.getEventType().getName().equals(Phase.class.getName()))
        .filter(event -> event.getString("phase").equals("backward"))
        .filter(event -> event.getInt("rank") == rank && event.getInt("step") == step)
        .findFirst()
        .orElseThrow();
  }

  private static List<RecordedEvent> collectivesLaunchedIn(RecordedEvent phase, Path file)
      throws IOException {
    return RecordingFile.readAllEvents(file).stream()
        .filter(event -> event.getEventType().getName().equals("io.nccl4j.Collective"))
        .filter(event -> event.getInt("rank") == phase.getInt("rank"))
        .filter(event -> within(event.getStartTime(), phase))
        .toList();
  }

  private static boolean within(Instant time, RecordedEvent phase) {
    return !time.isBefore(phase.getStartTime()) && !time.isAfter(phase.getEndTime());
  }

  @Test
  void failureToMarkAGradientIsThrownByFinish() throws Exception {
    ReferenceRanks.run(
        1,
        comm -> {
          Tensor w = Tensor.create(new float[] {5}, 1);
          w.set_requires_grad(true);
          try (DataParallel model =
              new DataParallel(comm, Map.of("w", w), ReducerConfig.defaults())) {
            w.mul(new Scalar(2f)).sum().backward();
            w.mul(new Scalar(2f)).sum().backward();
            IllegalStateException twice = assertThrows(IllegalStateException.class, model::finish);
            assertEquals("backward could not mark a gradient", twice.getMessage());
            assertTrue(twice.getCause().getMessage().contains("'w'"), twice.getCause()::toString);
          }
          return null;
        });
  }

  @Test
  void modelIsUsableAfterClose() throws Exception {
    ReferenceRanks.run(
        1,
        comm -> {
          Tensor w = Tensor.create(new float[] {5}, 1);
          w.set_requires_grad(true);
          try (DataParallel model =
              new DataParallel(comm, Map.of("w", w), ReducerConfig.defaults())) {
            w.mul(new Scalar(2f)).sum().backward();
            model.finish();
            assertEquals(2, w.grad().item_float());
          }
          assertFalse(w.grad().defined(), "its memory is freed");
          w.mul(new Scalar(3f)).sum().backward();
          assertEquals(3, w.grad().item_float());
          return null;
        });
  }

  @Test
  void closeReleasesEverythingEvenIfSomeOfItFails() throws Exception {
    ReferenceRanks.run(
        1,
        comm -> {
          Tensor w = Tensor.create(new float[] {5}, 1);
          w.set_requires_grad(true);
          DataParallel model = new DataParallel(comm, Map.of("w", w), ReducerConfig.defaults());
          model.compute().close();
          assertThrows(IllegalStateException.class, model::close);
          assertFalse(w.grad().defined(), "its memory is freed");
          String closed = assertThrows(IllegalStateException.class, model::finish).getMessage();
          assertTrue(closed.startsWith("reducer is closed: "), closed);
          model.close();
          return null;
        });
  }

  @Test
  void averageOfDdpSimpleMayBeRoundedButNotWrong() {
    assertTrue(DdpSimple.isMean(0, 1));
    assertTrue(DdpSimple.isMean(3.5f, 2));
    assertTrue(DdpSimple.isMean(Math.nextUp(7f), 3));
    assertTrue(DdpSimple.isMean(Math.nextDown(7f), 3));
    assertFalse(DdpSimple.isMean(Math.nextUp(0f), 1), "one rank has nothing to round");
    assertFalse(DdpSimple.isMean(7, 2), "the sum");
    assertFalse(DdpSimple.isMean(0, 2), "rank 0's own");
    assertFalse(DdpSimple.isMean(7.0001f, 3));
    assertFalse(DdpSimple.isMean(Float.NaN, 2));
  }

  /** A tensor whose gradient cannot be reset. */
  private static final class Stubborn extends Tensor {
    private Error failure;

    Stubborn(float value) {
      super(Tensor.create(new float[] {value}, 1));
      set_requires_grad(true);
    }

    @Override
    public Tensor mutable_grad() {
      if (failure != null) {
        throw failure;
      }
      return super.mutable_grad();
    }
  }

  @Test
  void closeReleasesTheRestIfSeveralThrowTheSameError() throws Exception {
    ReferenceRanks.run(
        1,
        comm -> {
          Map<String, Tensor> parameters = new LinkedHashMap<>();
          parameters.put("v", new Stubborn(5));
          parameters.put("w", new Stubborn(7));
          DataParallel model = new DataParallel(comm, parameters, ReducerConfig.defaults());
          Error failure = new AssertionError("cannot be reset");
          parameters.values().forEach(tensor -> ((Stubborn) tensor).failure = failure);
          assertSame(failure, assertThrows(AssertionError.class, model::close));
          String closed = assertThrows(IllegalStateException.class, model::finish).getMessage();
          assertTrue(closed.startsWith("reducer is closed: "), closed);
          assertFalse(model.compute().isOpen());
          return null;
        });
  }

  /** A tensor on which no hook can be installed. */
  private static final class Unhookable extends Tensor {
    Unhookable(Tensor tensor) {
      super(tensor);
    }

    @Override
    public Tensor view_as(Tensor other) {
      throw new IllegalStateException("no view of this");
    }
  }

  @Test
  void constructorRestoresParametersIfAHookFails() throws Exception {
    ReferenceRanks.run(
        1,
        comm -> {
          Map<String, Tensor> parameters = new LinkedHashMap<>();
          parameters.put("w", Tensor.create(new float[] {5}, 1));
          parameters.put("v", new Unhookable(Tensor.create(new float[] {7}, 1)));
          parameters.values().forEach(tensor -> tensor.set_requires_grad(true));
          assertEquals(
              "no view of this",
              assertThrows(
                      IllegalStateException.class,
                      () -> new DataParallel(comm, parameters, ReducerConfig.defaults()))
                  .getMessage());
          for (Tensor tensor : parameters.values()) {
            assertFalse(tensor.grad().defined(), "its memory is freed");
          }
          return null;
        });
  }

  @Test
  void unsupportedTensorIsRejectedByName() throws Exception {
    ReferenceRanks.run(
        1,
        comm -> {
          Tensor w = Tensor.create(new float[6], 2, 3).t();
          IllegalArgumentException thrown =
              assertThrows(
                  IllegalArgumentException.class,
                  () -> new DataParallel(comm, Map.of("layer.w", w), ReducerConfig.defaults()));
          assertTrue(
              thrown.getMessage().startsWith("tensor layer.w has sizes [3, 2] and strides [1, 3]"),
              thrown::toString);
          return null;
        });
  }

  @Test
  void rowsDoNotDependOnTheDivisionOfTheBatch() {
    float[] whole = new float[4 * 3];
    new FloatPointer(new Batch(2, 0, 4).targets(3).data_ptr()).get(whole);
    for (int first : IntStream.range(0, 4).toArray()) {
      float[] row = new float[3];
      new FloatPointer(new Batch(2, first, 1).inputs(3).data_ptr()).get(row);
      assertArrayEquals(
          new float[] {row[2], row[1], row[0]},
          Arrays.copyOfRange(whole, 3 * first, 3 * first + 3));
    }
  }
}
