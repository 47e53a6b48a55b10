package io.nccl4j.examples.tensorparallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.tjake.jlama.tensor.AbstractTensor;
import com.github.tjake.jlama.tensor.FloatBufferTensor;
import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.Recorded;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import jdk.jfr.consumer.RecordedEvent;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@SuppressWarnings("rawtypes") // Jlama's own use of its tensors.
class TensorParallelTest {
  private static FinishedProgram run(int ranks) throws Exception {
    String launcher = Checkout.ROOT.resolve("examples/launch/plain.sh").toString();
    List<String> command = new ArrayList<>(List.of(launcher, Integer.toString(ranks)));
    command.addAll(
        FinishedProgram.java(
            "--sun-misc-unsafe-memory-access=allow",
            // Only the second compiler knows vectors.
            "-XX:TieredStopAtLevel=4",
            "--add-modules",
            "jdk.incubator.vector",
            TensorParallel.class.getName()));
    return FinishedProgram.run(Map.of(), command);
  }

  @Test
  @Tag("slow")
  void textDoesNotDependOnTheNumberOfRanks() throws Exception {
    FinishedProgram one = run(1);
    assertEquals(0, one.status(), one.output());
    assertTrue(one.out().matches("Once upon a time[ A-Za-z0-9]{32}\n"), one.out());
    assertTrue(one.out().chars().distinct().count() > 20, one.out());
    for (int ranks : List.of(2, 4)) {
      FinishedProgram several = run(ranks);
      assertEquals(0, several.status(), several.output());
      assertEquals(one.out(), several.out());
    }
  }

  @Test
  @Tag("slow")
  void numberOfRanksThatDoesNotDivideTheHeadsIsRejected() throws Exception {
    FinishedProgram ended = run(3);
    assertEquals(1, ended.status(), ended.output());
    String message = "there are 3 ranks; their number must divide the model's 4 key-value heads";
    assertTrue(ended.err().contains(message), ended.err());
  }

  @Test
  void eachLayerReducesTwoTensors() throws Exception {
    try (Recorded recorded = new Recorded();
        Backend backend = Backend.reference(1)) {
      backend.runRanks(1, comm -> TensorParallel.continuation(RandomModel.write(), comm));
      List<RecordedEvent> reductions = recorded.events("Collective");
      // The prompt, with the begin of a text, at once; then all tokens but the last, one at a time.
      assertEquals(2 * RandomModel.LAYERS * (1 + 31), reductions.size());
      assertEquals(17 * 256 * Float.BYTES, reductions.getFirst().getLong("bytes"));
      assertEquals(256 * Float.BYTES, reductions.getLast().getLong("bytes"));
    }
  }

  @Test
  void bufferIsTheTensorsMemory() {
    AbstractTensor tensor = new FloatBufferTensor(2, 3);
    tensor.set(5, 1, 2);
    try (Buffer buffer = TensorParallel.buffer(tensor)) {
      assertEquals(tensor.getMemorySegment().address(), buffer.address());
      assertEquals(6, buffer.count());
      assertEquals(5, buffer.segment().getAtIndex(ValueLayout.JAVA_FLOAT, 5));
    }
  }
}
