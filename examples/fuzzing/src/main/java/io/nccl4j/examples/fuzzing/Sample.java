package io.nccl4j.examples.fuzzing;

import java.io.ByteArrayOutputStream;
import java.io.DataOutput;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A valid input, divided into its fields, so that a mutation can change one as a whole. */
public final class Sample {
  /** Writes a message. */
  @FunctionalInterface
  public interface Writer {
    /**
     * Writes the message.
     *
     * @param out takes it; each call of a method begins a field
     * @throws IOException if the encoder fails
     */
    void write(DataOutput out) throws IOException;
  }

  private static final int MOST_PARTS = 1024;

  private final List<byte[]> fields;

  private Sample(List<byte[]> fields) {
    this.fields = fields;
  }

  /** {@return the message that an encoder writes, with its fields} */
  public static Sample of(Writer writer) throws IOException {
    FieldStream stream = new FieldStream();
    writer.write(new DataOutputStream(stream));
    return new Sample(stream.fields);
  }

  /**
   * {@return a message with fields of known widths; what follows the last one is one more field}
   *
   * @param bytes the message
   * @param widths the widths of its first fields, in bytes
   */
  public static Sample of(byte[] bytes, int... widths) {
    List<byte[]> fields = new ArrayList<>();
    int at = 0;
    for (int width : widths) {
      fields.add(Arrays.copyOfRange(bytes, at, at + width));
      at += width;
    }
    if (at < bytes.length) {
      fields.add(Arrays.copyOfRange(bytes, at, bytes.length));
    }
    return new Sample(fields);
  }

  /** {@return a message whose fields are not known, in parts of equal size} */
  public static Sample opaque(byte[] bytes) {
    int[] widths = new int[Math.min(MOST_PARTS, bytes.length / 4)];
    if (widths.length > 0) {
      Arrays.fill(widths, bytes.length / widths.length);
    }
    return of(bytes, widths);
  }

  /** {@return a text in UTF-8 whose fields are its words and punctuation marks} */
  public static Sample text(String text) {
    return new Sample(
        Arrays.stream(text.split("(?<=\\W)|(?=\\W)"))
            .map(word -> word.getBytes(StandardCharsets.UTF_8))
            .toList());
  }

  /** {@return both messages, one after the other} */
  public Sample followedBy(Sample next) {
    List<byte[]> both = new ArrayList<>(fields);
    both.addAll(next.fields);
    return new Sample(both);
  }

  List<byte[]> fields() {
    return fields;
  }

  /** {@return the whole message} */
  public byte[] bytes() {
    return join(fields);
  }

  static byte[] join(List<byte[]> parts) {
    ByteArrayOutputStream whole = new ByteArrayOutputStream();
    parts.forEach(whole::writeBytes);
    return whole.toByteArray();
  }

  /** Notes what each write of the encoder adds. */
  private static final class FieldStream extends ByteArrayOutputStream {
    private final List<byte[]> fields = new ArrayList<>();

    @Override
    public synchronized void write(int value) {
      fields.add(new byte[] {(byte) value});
    }

    @Override
    public synchronized void write(byte[] bytes, int offset, int length) {
      fields.add(Arrays.copyOfRange(bytes, offset, offset + length));
    }
  }
}
