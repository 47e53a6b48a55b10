package io.nccl4j.examples.training;

import java.util.SplittableRandom;
import org.bytedeco.pytorch.Tensor;

/**
 * Some rows of one step's batch. A row depends only on its index and the step, so the data does not
 * depend on how the batch is divided among ranks.
 *
 * @param step the step, from 0
 * @param first the first row
 * @param rows the number of rows
 */
record Batch(int step, int first, int rows) {
  /** {@return the inputs of the model: rows of numbers from -1 to 1} */
  Tensor inputs(int size) {
    return Tensor.create(values(size), rows, size);
  }

  /** {@return the targets: each row's inputs in reverse order} */
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
