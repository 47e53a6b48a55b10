package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.fixtures.Seed;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.Arrays;
import java.util.Locale;
import org.junit.jupiter.api.Test;

class UniqueIdTest {
  private final byte[] bytes = new byte[UniqueId.BYTES];

  UniqueIdTest() {
    Seed.random("unique id").nextBytes(bytes);
    bytes[0] = (byte) 0xF0;
  }

  @Test
  void bytesRoundTrip() {
    UniqueId id = UniqueId.of(bytes);
    assertArrayEquals(bytes, id.toBytes());
    assertEquals(id, UniqueId.of(id.toBytes()));
    assertEquals(id.hashCode(), UniqueId.of(id.toBytes()).hashCode());
  }

  @Test
  void hexadecimalTextRoundTrips() {
    UniqueId id = UniqueId.of(bytes);
    assertEquals(256, id.toHex().length());
    assertEquals("f0", id.toHex().substring(0, 2));
    assertEquals(id, UniqueId.fromHex(id.toHex()));
    assertEquals(id, UniqueId.fromHex(id.toHex().toUpperCase(Locale.ROOT)));
  }

  @Test
  void serialFormRoundTrips() throws Exception {
    UniqueId id = UniqueId.of(bytes);
    assertEquals(id, deserialize(serialize(id)));
  }

  @Test
  void invalidSerialFormIsRefused() throws Exception {
    byte[] serial = serialize(UniqueId.of(bytes));
    int start = indexOf(serial, bytes);
    Arrays.fill(serial, start, start + UniqueId.BYTES, (byte) 0);
    assertThrows(IllegalArgumentException.class, () -> deserialize(serial));
  }

  @Test
  void bytesAreCopied() {
    byte[] given = bytes.clone();
    UniqueId id = UniqueId.of(given);
    given[5]++;
    id.toBytes()[6]++;
    assertArrayEquals(bytes, id.toBytes());
  }

  @Test
  void idsOfDifferentBytesDiffer() {
    byte[] other = bytes.clone();
    other[127]++;
    assertNotEquals(UniqueId.of(bytes), UniqueId.of(other));
    assertNotEquals(UniqueId.of(bytes), "an id");
  }

  @Test
  void wrongLengthIsRefused() {
    for (int length : new int[] {0, 127, 129}) {
      Throwable thrown =
          assertThrows(IllegalArgumentException.class, () -> UniqueId.of(new byte[length]));
      assertEquals(
          "bytes has length " + length + "; a unique id has exactly 128 bytes",
          thrown.getMessage());
    }
    Throwable hex = assertThrows(IllegalArgumentException.class, () -> UniqueId.fromHex("ab"));
    assertEquals("hex has 2 digits; a unique id has exactly 256", hex.getMessage());
  }

  @Test
  void allZerosAreRefused() {
    Throwable thrown =
        assertThrows(IllegalArgumentException.class, () -> UniqueId.of(new byte[128]));
    assertEquals(
        "bytes are all zero, which is not a valid unique id; check how the id was exchanged",
        thrown.getMessage());
  }

  @Test
  void nonHexadecimalTextIsRefused() {
    String hex = "0".repeat(200) + "z" + "0".repeat(55);
    Throwable thrown = assertThrows(IllegalArgumentException.class, () -> UniqueId.fromHex(hex));
    assertEquals(
        "hex has 'z' at index 200; a unique id is 256 hexadecimal digits", thrown.getMessage());
  }

  @Test
  void toStringHidesTheBytes() {
    UniqueId id = UniqueId.of(bytes);
    assertEquals("UniqueId[#%08x]".formatted(id.hashCode()), id.toString());
    assertFalse(id.toString().contains(id.toHex().substring(0, 16)));
  }

  private static byte[] serialize(UniqueId id) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (ObjectOutputStream objects = new ObjectOutputStream(out)) {
      objects.writeObject(id);
    }
    return out.toByteArray();
  }

  private static Object deserialize(byte[] serial) throws IOException, ClassNotFoundException {
    try (ObjectInputStream objects = new ObjectInputStream(new ByteArrayInputStream(serial))) {
      return objects.readObject();
    }
  }

  private static int indexOf(byte[] all, byte[] part) {
    for (int i = 0; ; i++) {
      if (Arrays.equals(all, i, i + part.length, part, 0, part.length)) {
        return i;
      }
    }
  }
}
