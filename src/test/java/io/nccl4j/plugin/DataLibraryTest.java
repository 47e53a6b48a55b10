package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.internal.ffm.DynamicLoader;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.SequencedMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests the libraries without code: their file, and what another reader of the file gets. */
class DataLibraryTest {
  private static final int MACHINE = 0x12;

  private final SequencedMap<String, List<MemorySegment>> tables = new LinkedHashMap<>();

  @TempDir private Path directory;

  DataLibraryTest() {
    tables.put("firstTable", List.of(MemorySegment.ofAddress(11), MemorySegment.ofAddress(12)));
    tables.put("otherTable", List.of(MemorySegment.NULL, MemorySegment.ofAddress(22)));
    tables.put("lastTable", List.of(MemorySegment.ofAddress(31)));
  }

  @Test
  @SuppressWarnings("restricted") // As NCCL opens it.
  void tablesAreSharedByTheNameOfTheDeletedFile() throws Exception {
    Path file = directory.toRealPath().resolve("library.so");
    DataLibrary.load(file, tables);
    Files.delete(file);
    MemorySegment library = DynamicLoader.open(file.toString());
    for (var table : tables.entrySet()) {
      List<MemorySegment> expected = table.getValue();
      MemorySegment found =
          DynamicLoader.symbol(library, table.getKey()).reinterpret(8L * expected.size());
      assertEquals(
          expected,
          found.elements(ValueLayout.ADDRESS).map(e -> e.get(ValueLayout.ADDRESS, 0)).toList());
    }
  }

  @Test
  void machineFollowsTheArchitecture() {
    byte[] x86 = DataLibrary.bytes(DataLibrary.machine("amd64"), tables);
    byte[] arm = DataLibrary.bytes(DataLibrary.machine("aarch64"), tables);
    assertEquals(62, x86[MACHINE]);
    assertEquals((byte) 183, arm[MACHINE]);
    arm[MACHINE] = 62;
    assertArrayEquals(x86, arm);
    assertEquals(
        "NCCL's plugins need x86-64 or aarch64; this processor is riscv64",
        assertThrows(UnsupportedOperationException.class, () -> DataLibrary.machine("riscv64"))
            .getMessage());
  }
}
