package io.nccl4j.tools.doctor;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** Writes shared libraries that have only the sections that a test needs. */
final class ElfFile {
  private static final int HEADER = 64;
  private final Map<String, byte[]> sections = new LinkedHashMap<>();

  ElfFile section(String name, byte[] contents) {
    sections.put(name, contents);
    return this;
  }

  /** Adds NUL-terminated string constants. */
  ElfFile constants(String... texts) {
    return section(
        ".rodata", (String.join("\0", texts) + "\0").getBytes(StandardCharsets.ISO_8859_1));
  }

  /** Adds a fat binary; each entry is a kind (1 PTX, 2 machine code) and an architecture number. */
  ElfFile deviceCode(int[]... entries) {
    int payload = 16;
    ByteBuffer fat = ByteBuffer.allocate(16 + entries.length * (HEADER + payload));
    fat.order(ByteOrder.LITTLE_ENDIAN);
    fat.putInt(0xBA55ED50).putShort((short) 1).putShort((short) 16);
    fat.putLong((long) entries.length * (HEADER + payload));
    for (int[] entry : entries) {
      int at = fat.position();
      fat.putShort(at, (short) entry[0]).putInt(at + 4, HEADER).putLong(at + 8, payload);
      fat.putInt(at + 28, entry[1]);
      fat.position(at + HEADER + payload);
    }
    return section(".nv_fatbin", fat.array());
  }

  Path write(Path file) throws IOException {
    Files.createDirectories(file.getParent());
    ByteArrayOutputStream names = new ByteArrayOutputStream();
    names.write(0);
    ByteArrayOutputStream body = new ByteArrayOutputStream();
    ByteBuffer headers =
        ByteBuffer.allocate((sections.size() + 2) * HEADER).order(ByteOrder.LITTLE_ENDIAN);
    headers.position(HEADER);
    for (Map.Entry<String, byte[]> each : sections.entrySet()) {
      header(headers, names.size(), HEADER + body.size(), each.getValue().length);
      names.write((each.getKey() + "\0").getBytes(StandardCharsets.ISO_8859_1));
      body.write(each.getValue());
    }
    int namesAt = HEADER + body.size();
    body.write(names.toByteArray());
    header(headers, 0, namesAt, names.size());
    ByteBuffer start = ByteBuffer.allocate(HEADER).order(ByteOrder.LITTLE_ENDIAN);
    start.put(0, new byte[] {0x7F, 'E', 'L', 'F', 2, 1, 1});
    start.putLong(0x28, HEADER + body.size());
    start.putShort(0x3A, (short) HEADER).putShort(0x3C, (short) (sections.size() + 2));
    start.putShort(0x3E, (short) (sections.size() + 1));
    ByteArrayOutputStream whole = new ByteArrayOutputStream();
    whole.write(start.array());
    whole.write(body.toByteArray());
    whole.write(headers.array());
    return Files.write(file, whole.toByteArray());
  }

  private static void header(ByteBuffer headers, int name, long offset, long size) {
    int at = headers.position();
    headers.putInt(at, name).putInt(at + 4, 1).putLong(at + 0x18, offset).putLong(at + 0x20, size);
    headers.position(at + HEADER);
  }
}
