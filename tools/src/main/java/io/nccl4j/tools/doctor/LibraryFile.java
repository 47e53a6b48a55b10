package io.nccl4j.tools.doctor;

import java.io.EOFException;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The contents of a libnccl file, read without loading it.
 *
 * @param version the release in its version string, such as 2.30.7; empty if it has none
 * @param builtForCuda the CUDA version in that string, such as 13.3; empty if it has none
 * @param standIn whether it is the stand-in of nccl4j's tests
 * @param variables the strings of the form {@code NCCL_...} in it, which include the environment
 *     variables that it reads
 * @param architectures the targets of its device code; empty if none was recognised
 */
record LibraryFile(
    Optional<String> version,
    Optional<String> builtForCuda,
    boolean standIn,
    Set<String> variables,
    Set<Architecture> architectures) {
  private static final int ELF_MAGIC = 0x464C457F;
  private static final byte ELF_64 = 2;
  private static final long ELF_HEADER_BYTES = 64;
  private static final String STAND_IN = "nccl4j stand-in";
  // A linker merges a string with a longer one that ends in it, so any text may precede a name.
  private static final Pattern VARIABLE = Pattern.compile("NCCL_[A-Z0-9_]+(?=\0)");
  private static final Pattern VERSION =
      Pattern.compile("NCCL version ([0-9]+\\.[0-9]+\\.[0-9]+)[^+\0]*\\+cuda([0-9]+\\.[0-9]+)");

  private static final ValueLayout.OfShort SHORT =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfInt INT =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong LONG =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  /**
   * Reads a shared library.
   *
   * @throws IOException if it cannot be read or is not a 64-bit ELF file
   */
  static LibraryFile read(Path file) throws IOException {
    try (FileChannel channel = FileChannel.open(file);
        Arena arena = Arena.ofConfined()) {
      MemorySegment elf = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size(), arena);
      return of(sections(elf, file));
    }
  }

  private static LibraryFile of(Map<String, MemorySegment> sections) {
    String constants = text(sections.get(".rodata"));
    Set<String> variables = new TreeSet<>();
    VARIABLE.matcher(constants).results().forEach(match -> variables.add(match.group()));
    Set<Architecture> architectures = new TreeSet<>();
    sections.forEach(
        (name, section) -> {
          if (name.equals(".nv_fatbin") || name.equals("__nv_relfatbin")) {
            architectures.addAll(DeviceCode.architectures(section));
          }
        });
    Matcher version = VERSION.matcher(constants);
    boolean versioned = version.find();
    return new LibraryFile(
        versioned ? Optional.of(version.group(1)) : Optional.empty(),
        versioned ? Optional.of(version.group(2)) : Optional.empty(),
        constants.contains(STAND_IN),
        variables,
        architectures);
  }

  private static String text(MemorySegment section) {
    return section == null
        ? ""
        : new String(section.toArray(ValueLayout.JAVA_BYTE), StandardCharsets.ISO_8859_1);
  }

  private static Map<String, MemorySegment> sections(MemorySegment elf, Path file)
      throws IOException {
    if (elf.byteSize() < ELF_HEADER_BYTES
        || elf.get(INT, 0) != ELF_MAGIC
        || elf.get(ValueLayout.JAVA_BYTE, 4) != ELF_64) {
      throw new IOException(file + " is not a 64-bit ELF file");
    }
    try {
      return sections(elf);
    } catch (IndexOutOfBoundsException e) {
      EOFException truncated = new EOFException(file + " is truncated");
      truncated.initCause(e);
      throw truncated;
    }
  }

  private static Map<String, MemorySegment> sections(MemorySegment elf) {
    long headers = elf.get(LONG, 0x28);
    int size = elf.get(SHORT, 0x3A);
    int count = elf.get(SHORT, 0x3C);
    Map<String, MemorySegment> sections = new TreeMap<>();
    if (headers == 0 || count == 0) {
      return sections;
    }
    long names = elf.get(LONG, headers + (long) size * elf.get(SHORT, 0x3E) + 0x18);
    for (int i = 0; i < count; i++) {
      long header = headers + (long) size * i;
      boolean inFile = elf.get(INT, header + 4) != 8; // SHT_NOBITS
      if (inFile) {
        String name = elf.getString(names + elf.get(INT, header));
        sections.put(name, elf.asSlice(elf.get(LONG, header + 0x18), elf.get(LONG, header + 0x20)));
      }
    }
    return sections;
  }

  /** Returns whether any of the device code runs on a GPU of a compute capability. */
  boolean runsOn(int computeCapability) {
    return architectures.stream().anyMatch(each -> each.runsOn(computeCapability));
  }
}
