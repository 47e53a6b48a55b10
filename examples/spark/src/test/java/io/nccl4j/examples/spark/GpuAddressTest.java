package io.nccl4j.examples.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Map;
import java.util.OptionalInt;
import org.apache.spark.resource.ResourceInformation;
import org.junit.jupiter.api.Test;

class GpuAddressTest {
  private static OptionalInt gpu(String... addresses) {
    return GpuAddress.of(Map.of("gpu", new ResourceInformation("gpu", addresses)));
  }

  private static String messageFor(String... addresses) {
    return assertThrows(IllegalStateException.class, () -> gpu(addresses)).getMessage();
  }

  @Test
  void addressIsTheIndexOfADevice() {
    assertEquals(OptionalInt.of(0), gpu("0"));
    assertEquals(OptionalInt.of(15), gpu("15"));
    assertEquals(OptionalInt.of(3), gpu(" 3\n"));
  }

  @Test
  void taskWithoutGpuHasNoIndex() {
    assertEquals(OptionalInt.empty(), GpuAddress.of(Map.of()));
    assertEquals(OptionalInt.empty(), gpu());
    ResourceInformation other = new ResourceInformation("fpga", new String[] {"0"});
    assertEquals(OptionalInt.empty(), GpuAddress.of(Map.of("fpga", other)));
  }

  @Test
  void taskWithSeveralGpusIsRejected() {
    assertEquals(
        "Spark has assigned the GPUs [0, 1] to the task; a rank uses one: set"
            + " spark.task.resource.gpu.amount=1",
        messageFor("0", "1"));
  }

  @Test
  void indexBeyondTheDevicesIsNamed() {
    assertEquals(3, GpuAddress.device(OptionalInt.of(3), 4));
    assertEquals(0, GpuAddress.device(OptionalInt.empty(), 4));
    IllegalStateException beyond =
        assertThrows(IllegalStateException.class, () -> GpuAddress.device(OptionalInt.of(4), 4));
    assertEquals(
        "Spark has assigned GPU 4 to the task, but the number of devices that CUDA shows to this"
            + " process is 4; check CUDA_VISIBLE_DEVICES of the executors",
        beyond.getMessage());
  }

  @Test
  void invalidAddressIsNamed() {
    String uuid = "GPU-7dce4fe3-9f0d-4a2b-a0a3-5d7e0f0f3a11";
    for (String address : new String[] {uuid, "", "-1", "12345", "0x1"}) {
      String message = messageFor(address);
      assertEquals(
          "the address of the task's GPU is '" + address + "'; it must be its index on its host",
          message.substring(0, message.indexOf("; check")));
    }
  }
}
