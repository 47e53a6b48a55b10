package io.nccl4j.plugin;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.SequencedMap;

/**
 * A shared library without code, written by Java: it has one symbol per table, and Java fills the
 * tables with addresses once it has loaded the library. Code that opens the same file later gets
 * the same tables.
 *
 * <p>The file is one writable segment:
 *
 * <pre>
 * ELF header | program headers | dynamic section | hash table | symbols | names | tables
 * </pre>
 *
 * The hash table has one bucket, so that no names are hashed. There are no sections.
 */
final class DataLibrary {
  private static final int X86_64 = 62;
  private static final int AARCH64 = 183;

  private static final int HEADER = 64;
  private static final int PROGRAM_HEADER = 56;
  private static final int DYNAMIC_ENTRY = 16;
  private static final int SYMBOL = 24;
  private static final int POINTER = 8;
  // The largest page size of the two architectures.
  private static final int PAGE = 1 << 16;

  private static final int LOAD = 1;
  private static final int DYNAMIC = 2;
  // Its absence would make the loader ask for executable stacks.
  private static final int GNU_STACK = 0x6474e551;
  private static final int READ_WRITE = 6;

  private DataLibrary() {}

  /**
   * Writes a library to a file, loads it for the rest of the process, and fills its tables. The
   * file may be deleted then.
   *
   * @param file a path without links
   * @param tables the addresses that each symbol's table consists of
   * @throws UnsupportedOperationException if the processor is neither x86-64 nor aarch64
   */
  @SuppressWarnings("restricted") // The loaded file has no code.
  static void load(Path file, SequencedMap<String, List<MemorySegment>> tables) throws IOException {
    Files.write(file, bytes(machine(System.getProperty("os.arch")), tables));
    SymbolLookup library = SymbolLookup.libraryLookup(file, Arena.global());
    tables.forEach(
        (symbol, addresses) -> {
          long size = (long) addresses.size() * POINTER;
          MemorySegment table = library.findOrThrow(symbol).reinterpret(size);
          for (int i = 0; i < addresses.size(); i++) {
            table.setAtIndex(ValueLayout.ADDRESS, i, addresses.get(i));
          }
        });
  }

  /** Returns the number of a processor's architecture in an ELF file. */
  static int machine(String architecture) {
    return switch (architecture) {
      case "amd64" -> X86_64;
      case "aarch64" -> AARCH64;
      default ->
          throw new UnsupportedOperationException(
              "NCCL's plugins need x86-64 or aarch64; this processor is " + architecture);
    };
  }

  /** Returns the content of the file, with tables of zeros. */
  static byte[] bytes(int machine, SequencedMap<String, List<MemorySegment>> tables) {
    int count = tables.size() + 1; // The first symbol is undefined.
    int dynamic = HEADER + 3 * PROGRAM_HEADER;
    int hash = dynamic + 6 * DYNAMIC_ENTRY;
    int symbols = align(hash + (3 + count) * Integer.BYTES);
    int names = symbols + count * SYMBOL;
    byte[] text =
        ("\0" + String.join("\0", tables.keySet()) + "\0").getBytes(StandardCharsets.UTF_8);
    int data = align(names + text.length);
    int end = data;
    for (List<MemorySegment> table : tables.values()) {
      end += table.size() * POINTER;
    }
    ByteBuffer file = ByteBuffer.allocate(end).order(ByteOrder.LITTLE_ENDIAN);

    file.put(new byte[] {0x7f, 'E', 'L', 'F', 2, 1, 1}).position(16);
    file.putShort((short) 3).putShort((short) machine).putInt(1); // A shared object.
    file.putLong(0).putLong(HEADER).putLong(0).putInt(0);
    file.putShort((short) HEADER).putShort((short) PROGRAM_HEADER).putShort((short) 3);
    file.position(HEADER);
    programHeader(file, LOAD, 0, end, PAGE);
    programHeader(file, DYNAMIC, dynamic, hash - dynamic, POINTER);
    programHeader(file, GNU_STACK, 0, 0, POINTER);

    file.putLong(4).putLong(hash).putLong(5).putLong(names).putLong(6).putLong(symbols);
    file.putLong(10).putLong(text.length).putLong(11).putLong(SYMBOL).putLong(0).putLong(0);

    // One bucket, a chain of all symbols.
    file.putInt(1).putInt(count).putInt(1).putInt(0);
    for (int i = 1; i < count; i++) {
      file.putInt(i + 1 < count ? i + 1 : 0);
    }

    file.position(symbols + SYMBOL);
    int name = 1;
    int at = data;
    for (var table : tables.entrySet()) {
      int size = table.getValue().size() * POINTER;
      // A global object in some section.
      file.putInt(name)
          .put((byte) 0x11)
          .put((byte) 0)
          .putShort((short) 1)
          .putLong(at)
          .putLong(size);
      name += table.getKey().length() + 1;
      at += size;
    }
    file.put(text);
    return file.array();
  }

  private static void programHeader(ByteBuffer file, int type, int at, int size, int alignment) {
    file.putInt(type).putInt(READ_WRITE).putLong(at).putLong(at).putLong(at);
    file.putLong(size).putLong(size).putLong(alignment);
  }

  private static int align(int offset) {
    return (offset + POINTER - 1) & -POINTER;
  }
}
