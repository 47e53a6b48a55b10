package io.nccl4j.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Finds the CUDA release in NCCL's library file. */
class CudaOfLibraryTest {
  @TempDir private Path temp;

  @Test
  void releaseIsFoundAnywhereInTheFile() throws IOException {
    String text = "NCCL version 2.30.7+cuda13.3\0";
    assertEquals(Optional.of("13.3"), cudaOf("x".repeat(100) + text + "x".repeat(100)));
    assertEquals(Optional.of("13.3"), cudaOf("x".repeat(100) + text + "x".repeat(55)));
    assertEquals(Optional.of("13.3"), cudaOf("x".repeat(100) + text));
    assertEquals(Optional.of("13.3"), cudaOf(text));
  }

  @Test
  void incompleteVersionIsSkippedUpToTheEnd() throws IOException {
    assertEquals(Optional.empty(), cudaOf("x".repeat(100) + "NCCL version "));
    assertEquals(Optional.empty(), cudaOf("NCCL version 2.30.7+cuda"));
    assertEquals(Optional.empty(), cudaOf("NCCL"));
    assertEquals(
        Optional.of("12.9"), cudaOf("NCCL version %d\0 and NCCL version 2.30.7+cuda12.9\0"));
  }

  private Optional<String> cudaOf(String text) throws IOException {
    Path file = Files.writeString(temp.resolve("library"), text, StandardCharsets.ISO_8859_1);
    return VersionReport.cudaOf(file);
  }
}
