package io.nccl4j.internal.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The library under test is one of the JDK's own. */
class ElfFileTest {
  private static final Path WHOLE = Path.of(System.getProperty("java.home"), "lib", "libjava.so");

  @TempDir private Path temp;

  @Test
  void wholeLibraryHasNoFault() throws IOException {
    assertNull(ElfFile.fault(WHOLE));
    Path link = Files.createSymbolicLink(temp.resolve("link"), WHOLE);
    assertNull(ElfFile.fault(link));
  }

  @Test
  void unreachableFileIsLeftToTheLoader() throws IOException {
    assertNull(ElfFile.fault(temp.resolve("missing")));
    Path link = Files.createSymbolicLink(temp.resolve("link"), temp.resolve("missing"));
    assertNull(ElfFile.fault(link));
  }

  @ParameterizedTest
  @CsvSource({
    "0, is not a shared library (not an ELF file)",
    "63, is not a shared library (not an ELF file)",
    "64, is truncated: it has 64 of at least ",
    "1000, is truncated: it has 1000 of at least ",
    "10000, is truncated: it has 10000 of at least "
  })
  void truncatedLibraryIsRefused(int bytes, String reason) throws IOException {
    Path file = write(Arrays.copyOf(Files.readAllBytes(WHOLE), bytes));
    assertTrue(ElfFile.fault(file).startsWith(reason), ElfFile.fault(file));
  }

  @Test
  void lastByteIsNeeded() throws IOException {
    byte[] bytes = Files.readAllBytes(WHOLE);
    assertEquals(
        "is truncated: it has " + (bytes.length - 1) + " of at least " + bytes.length + " bytes",
        ElfFile.fault(write(Arrays.copyOf(bytes, bytes.length - 1))));
  }

  @ParameterizedTest
  @CsvSource({
    "0, 0, is not a shared library (not an ELF file)",
    "4, 1, is a 32-bit library; Java needs a 64-bit one",
    "18, 40, is for another processor (ELF machine 40)",
    "18, 243, is for another processor (ELF machine 243)"
  })
  void headerIsChecked(int offset, int value, String reason) throws IOException {
    byte[] bytes = Files.readAllBytes(WHOLE);
    bytes[offset] = (byte) value;
    Path file = write(bytes);
    assertTrue(ElfFile.fault(file).startsWith(reason), ElfFile.fault(file));
  }

  @Test
  void numberOfProgramHeadersMayBeAnything() throws IOException {
    byte[] bytes = Files.readAllBytes(WHOLE);
    Arrays.fill(bytes, 0x38, 0x3A, (byte) 0xFF);
    assertTrue(ElfFile.fault(write(bytes)).startsWith("is truncated"));
  }

  /** The highest byte of the offset of the program headers, and of the section headers. */
  @ParameterizedTest
  @ValueSource(ints = {0x27, 0x2F})
  void offsetBeyondAnyFileIsDamage(int offset) throws IOException {
    byte[] bytes = Files.readAllBytes(WHOLE);
    for (int value : new int[] {0x7F, 0x80, 0xFF}) {
      Arrays.fill(bytes, offset - 6, offset, (byte) 0xFF);
      bytes[offset] = (byte) value;
      String fault = ElfFile.fault(write(bytes));
      boolean fits = value == 0x7F;
      assertTrue(
          fault.startsWith("cannot be read: java.io.IOException: its header is damaged")
              || (fits && fault.startsWith("is truncated")),
          fault);
    }
  }

  @Test
  void loaderScriptIsNoLibrary() throws IOException {
    Path file = Files.writeString(temp.resolve("libnccl.so"), "INPUT(libnccl.so.2)\n".repeat(9));
    assertEquals("is not a shared library (not an ELF file)", ElfFile.fault(file));
  }

  @Test
  @Timeout(60)
  void otherKindsOfFileAreRefused() throws Exception {
    Path pipe = temp.resolve("pipe");
    assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
    for (Path file : new Path[] {temp, pipe, Path.of("/dev/zero")}) {
      assertEquals("is not a regular file", ElfFile.fault(file), file.toString());
    }
  }

  private Path write(byte[] bytes) throws IOException {
    return Files.write(temp.resolve("libnccl.so.2"), bytes);
  }
}
