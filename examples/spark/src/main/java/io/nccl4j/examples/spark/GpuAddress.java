package io.nccl4j.examples.spark;

import java.util.Arrays;
import java.util.Map;
import java.util.OptionalInt;
import org.apache.spark.resource.ResourceInformation;

/** The GPU that Spark has given to a task. */
final class GpuAddress {
  /** Spark's name of the resource; it is the cluster's to choose, and this is the usual one. */
  private static final String RESOURCE = "gpu";

  private GpuAddress() {}

  /**
   * {@return the index of the task's GPU, or nothing if Spark has given it none}
   *
   * @param resources the task's resources by name
   * @throws IllegalStateException if Spark has given it several, or an address that is no index
   */
  static OptionalInt of(Map<String, ResourceInformation> resources) {
    ResourceInformation gpus = resources.get(RESOURCE);
    if (gpus == null || gpus.addresses().length == 0) {
      return OptionalInt.empty();
    }
    if (gpus.addresses().length > 1) {
      throw new IllegalStateException(
          "Spark has given the task the GPUs "
              + Arrays.toString(gpus.addresses())
              + "; a rank uses one: set spark.task.resource.gpu.amount=1");
    }
    return OptionalInt.of(index(gpus.addresses()[0]));
  }

  /**
   * {@return the device to use: that of the GPU, or the first where there is none}
   *
   * @param gpu the index of the task's GPU, if it has one
   * @param devices how many devices the backend has
   * @throws IllegalStateException if the backend has no device of this index
   */
  static int device(OptionalInt gpu, int devices) {
    if (gpu.orElse(0) >= devices) {
      throw new IllegalStateException(
          "Spark has given the task GPU "
              + gpu.getAsInt()
              + ", but the number of devices that CUDA shows to this process is "
              + devices
              + ": is CUDA_VISIBLE_DEVICES set for executors?");
    }
    return gpu.orElse(0);
  }

  private static int index(String address) {
    // As nvidia-smi counts; more digits than any host has GPUs would be no index either.
    if (!address.strip().matches("[0-9]{1,4}")) {
      throw new IllegalStateException(
          "the address of the task's GPU is '"
              + address
              + "'; it must be its index on its host: see the discovery script of the cluster"
              + " (spark.executor.resource.gpu.discoveryScript)");
    }
    return Integer.parseInt(address.strip());
  }
}
