package io.nccl4j.internal.flight;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/**
 * Writes a tree in protocol 2 of Python's pickle.
 *
 * @see <a href="https://github.com/python/cpython/blob/3.13/Lib/pickletools.py">the opcodes</a>
 */
final class Pickle {
  private final ByteArrayOutputStream out = new ByteArrayOutputStream();

  private Pickle() {}

  static byte[] of(Object tree) {
    Pickle pickle = new Pickle();
    pickle.out.write(0x80); // PROTO
    pickle.out.write(2);
    pickle.add(tree);
    pickle.out.write('.'); // STOP
    return pickle.out.toByteArray();
  }

  private void add(Object tree) {
    switch (tree) {
      case null -> out.write('N');
      case Boolean value -> out.write(value ? 0x88 : 0x89);
      case Long value -> {
        out.write(0x8a); // LONG1
        out.write(Long.BYTES);
        out.writeBytes(littleEndian(Long.BYTES).putLong(value).array());
      }
      case String value -> {
        byte[] text = value.getBytes(StandardCharsets.UTF_8);
        out.write('X'); // BINUNICODE
        out.writeBytes(littleEndian(Integer.BYTES).putInt(text.length).array());
        out.writeBytes(text);
      }
      case List<?> list -> {
        out.write(']'); // EMPTY_LIST
        out.write('('); // MARK
        list.forEach(this::add);
        out.write('e'); // APPENDS
      }
      case Map<?, ?> map -> {
        out.write('}'); // EMPTY_DICT
        out.write('('); // MARK
        map.forEach(
            (key, value) -> {
              add(key);
              add(value);
            });
        out.write('u'); // SETITEMS
      }
      default -> throw new IllegalArgumentException("no pickle for " + tree.getClass());
    }
  }

  private static ByteBuffer littleEndian(int bytes) {
    return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }
}
