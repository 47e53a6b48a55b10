package io.nccl4j.examples.training;

import java.util.SplittableRandom;
import org.bytedeco.pytorch.Tensor;

/**
 * Some rows of one step's batch. A row depends on its number and the step alone, so any division of
 * the batch among ranks is a division of the same data.
 *
 * @param step which step, from 0
 * @param first the first row
 * @param rows how many
 */
record Batch(int step, int first, int rows) {
  /** {@return what goes into the model: a row of numbers from -1 to 1 each} */
  Tensor inputs(int size) {
    return Tensor.create(values(size), rows, size);
  }

  /** {@return what is to come out: the inputs from the last to the first} */
  Tensor targets(int size) {
    float[] inputs = values(size);
    float[] targets = new float[inputs.length];
    for (int i = 0; i < inputs.length; i++) {
      targets[i] = inputs[i - i % size + (size - 1 - i % size)];
    }
    return Tensor.create(targets, rows, size);
  }

  private float[] values(int size) {
    float[] values = new float[Math.multiplyExact(rows, size)];
    for (int row = 0; row < rows; row++) {
      SplittableRandom random = new SplittableRandom(((long) step << Integer.SIZE) + first + row);
      for (int i = 0; i < size; i++) {
        values[row * size + i] = (float) random.nextDouble(-1, 1);
      }
    }
    return values;
  }
}
