package io.nccl4j.examples.spark;

import java.util.Arrays;
import java.util.Map;
import java.util.OptionalInt;
import org.apache.spark.resource.ResourceInformation;

/** The GPU that Spark has assigned to a task. */
final class GpuAddress {
  /** The usual name of the resource; clusters may choose another. */
  private static final String RESOURCE = "gpu";

  private GpuAddress() {}

  /**
   * {@return the index of the task's GPU, or empty if Spark has assigned none}
   *
   * @param resources the task's resources by name
   * @throws IllegalStateException if Spark has assigned several GPUs, or an address that is not an
   *     index
   */
  static OptionalInt of(Map<String, ResourceInformation> resources) {
    ResourceInformation gpus = resources.get(RESOURCE);
    if (gpus == null || gpus.addresses().length == 0) {
      return OptionalInt.empty();
    }
    if (gpus.addresses().length > 1) {
      throw new IllegalStateException(
          "Spark has assigned the GPUs "
              + Arrays.toString(gpus.addresses())
              + " to the task; a rank uses one: set spark.task.resource.gpu.amount=1");
    }
    return OptionalInt.of(index(gpus.addresses()[0]));
  }

  /**
   * {@return the device to use: the task's GPU, or device 0 if it has none}
   *
   * @param gpu the index of the task's GPU, if it has one
   * @param devices the number of devices of the backend
   * @throws IllegalStateException if the backend has no device with this index
   */
  static int device(OptionalInt gpu, int devices) {
    if (gpu.orElse(0) >= devices) {
      throw new IllegalStateException(
          "Spark has assigned GPU "
              + gpu.getAsInt()
              + " to the task, but the number of devices that CUDA shows to this process is "
              + devices
              + "; check CUDA_VISIBLE_DEVICES of the executors");
    }
    return gpu.orElse(0);
  }

  private static int index(String address) {
    // The index of nvidia-smi; no host has GPUs with more digits.
    if (!address.strip().matches("[0-9]{1,4}")) {
      throw new IllegalStateException(
          "the address of the task's GPU is '"
              + address
              + "'; it must be its index on its host; check the discovery script of the cluster"
              + " (spark.executor.resource.gpu.discoveryScript)");
    }
    return Integer.parseInt(address.strip());
  }
}
