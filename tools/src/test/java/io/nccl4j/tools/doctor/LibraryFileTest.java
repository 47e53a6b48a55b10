package io.nccl4j.tools.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.Checkout;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests of reading a libnccl file without loading it. */
class LibraryFileTest {
  @TempDir Path folder;

  @Test
  void releaseVariablesAndDeviceCodeAreRead() throws IOException {
    Path file =
        new ElfFile()
            .constants(
                "NCCL_DEBUG",
                "set NCCL_ALGO to something",
                "00.0NCCL_SOCKET_MAGIC",
                "NCCL version 2.27.3+cuda12.9")
            .deviceCode(new int[] {2, 80}, new int[] {2, 90}, new int[] {1, 90})
            .write(folder.resolve("libnccl.so.2"));
    LibraryFile read = LibraryFile.read(file);
    assertEquals(Optional.of("2.27.3"), read.version());
    assertEquals(Optional.of("12.9"), read.builtForCuda());
    assertEquals(Set.of("NCCL_DEBUG", "NCCL_SOCKET_MAGIC"), read.variables());
    assertEquals(
        Set.of(
            new Architecture(80, false), new Architecture(90, false), new Architecture(90, true)),
        read.architectures());
    assertFalse(read.standIn());
  }

  @Test
  void machineCodeRunsOnItsMajorNumberAndPtxOnAllLater() {
    Architecture sm80 = new Architecture(80, false);
    assertTrue(sm80.runsOn(80));
    assertTrue(sm80.runsOn(89));
    assertFalse(sm80.runsOn(90));
    assertFalse(new Architecture(89, false).runsOn(80));
    assertTrue(new Architecture(90, true).runsOn(120));
    assertFalse(new Architecture(90, true).runsOn(89));
  }

  @Test
  void deviceCodeOfAnotherShapeIsNoDeviceCode() throws IOException {
    Path file =
        new ElfFile().section(".nv_fatbin", new byte[200]).write(folder.resolve("libnccl.so.2"));
    assertEquals(Set.of(), LibraryFile.read(file).architectures());
  }

  @Test
  void fileThatIsNotALibraryIsNamed() throws IOException {
    Path text = Files.writeString(folder.resolve("libnccl.so.2"), "not a library");
    IOException e = assertThrows(IOException.class, () -> LibraryFile.read(text));
    assertEquals(text + " is not a 64-bit ELF file", e.getMessage());
  }

  @Test
  void truncatedFileIsNamed() throws IOException {
    Path whole = new ElfFile().constants("NCCL_DEBUG").write(folder.resolve("whole"));
    byte[] bytes = Files.readAllBytes(whole);
    Path cut = Files.write(folder.resolve("cut"), Arrays.copyOf(bytes, bytes.length - 100));
    IOException e = assertThrows(IOException.class, () -> LibraryFile.read(cut));
    assertEquals(cut + " is truncated", e.getMessage());
  }

  @Test
  void nvidiaLibraryMatchesItsSource() throws IOException {
    Path file = Checkout.ROOT.resolve("target/native/nvidia/nccl/lib/libnccl.so.2");
    boolean exists = Files.exists(file);
    assertTrue(exists || !"1".equals(System.getenv("REQUIRE_NCCL")), file + " does not exist");
    assumeTrue(exists, file + " does not exist; scripts/fetch-native downloads it");
    LibraryFile read = LibraryFile.read(file);
    assertEquals(Optional.of("2.30.7"), read.version());
    assertEquals(Optional.of("13.3"), read.builtForCuda());
    assertEquals(
        "[sm_75, sm_80, sm_90, sm_100, sm_110, sm_120, compute_120]",
        read.architectures().toString());
    assertTrue(
        read.variables()
            .containsAll(
                List.of("NCCL_DEBUG", "NCCL_NET", "NCCL_ALGO", "NCCL_IB_HCA", "NCCL_RAS_ENABLE")));
    assertFalse(read.variables().contains("NCCL_SHM_USE_CUDA_MEMORY"), "2.30 no longer reads it");
    assertFalse(read.standIn());
  }
}
