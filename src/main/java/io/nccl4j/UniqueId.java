package io.nccl4j;

import java.io.InvalidObjectException;
import java.io.Serializable;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/**
 * The id that the ranks of a communicator share in order to connect to each other.
 *
 * {@snippet :
 * UniqueId id = rank == 0 ? backend.newUniqueId() : UniqueId.fromHex(receivedHex);
 * Communicator comm = backend.newCommunicator(id, worldSize, rank);
 * }
 *
 * <p>One rank creates the id with {@link Backend#newUniqueId}, shares it with every rank (see
 * {@code io.nccl4j.rendezvous}), and all ranks pass it to {@link Backend#newCommunicator}. An id
 * identifies the backend that created it; the other backend rejects it.
 *
 * <p>Immutable. Anyone who knows the bytes can join the communicator, so {@link #toString} shows
 * only a short fingerprint.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclUniqueId">ncclUniqueId</a>
 */
@NullMarked
public final class UniqueId implements Serializable {
  private static final long serialVersionUID = 1;

  /** The size of an id in bytes: {@code NCCL_UNIQUE_ID_BYTES}. */
  public static final int BYTES = 128;

  /** The {@link #BYTES} bytes. */
  private final byte[] bytes;

  private UniqueId(byte[] bytes) {
    this.bytes = bytes;
  }

  /**
   * Creates an id from its bytes, which are copied.
   *
   * @param bytes exactly {@link #BYTES} bytes, not all of them zero
   * @return the id
   * @throws IllegalArgumentException if the length is wrong or all bytes are zero
   */
  public static UniqueId of(byte[] bytes) {
    Objects.requireNonNull(bytes, "bytes");
    if (bytes.length != BYTES) {
      throw new IllegalArgumentException(
          "bytes has length " + bytes.length + "; a unique id has exactly " + BYTES + " bytes");
    }
    if (Arrays.equals(bytes, new byte[BYTES])) {
      throw new IllegalArgumentException(
          "bytes are all zero, which is not a valid unique id; check how the id was exchanged");
    }
    return new UniqueId(bytes.clone());
  }

  /**
   * Creates an id from the text that {@link #toHex} returned.
   *
   * @param hex {@code 2 * BYTES} hexadecimal digits
   * @return the id
   * @throws IllegalArgumentException if the text is not such an id
   */
  public static UniqueId fromHex(String hex) {
    Objects.requireNonNull(hex, "hex");
    if (hex.length() != 2 * BYTES) {
      throw new IllegalArgumentException(
          "hex has " + hex.length() + " digits; a unique id has exactly " + 2 * BYTES);
    }
    for (int i = 0; i < hex.length(); i++) {
      if (!HexFormat.isHexDigit(hex.charAt(i))) {
        throw new IllegalArgumentException(
            "hex has '%c' at index %d; a unique id is %d hexadecimal digits"
                .formatted(hex.charAt(i), i, 2 * BYTES));
      }
    }
    return of(HexFormat.of().parseHex(hex));
  }

  /** {@return a copy of the {@link #BYTES} bytes} */
  public byte[] toBytes() {
    return bytes.clone();
  }

  /** {@return the bytes as {@code 2 * BYTES} lower-case hexadecimal digits} */
  public String toHex() {
    return HexFormat.of().formatHex(bytes);
  }

  /**
   * Validates a deserialized id, whose serial form may be forged or damaged.
   *
   * @return an id with a copy of the bytes
   * @throws InvalidObjectException if there are no bytes
   * @throws IllegalArgumentException if the length is wrong or all bytes are zero
   */
  private Object readResolve() throws InvalidObjectException {
    if (bytes == null) {
      throw new InvalidObjectException("the serial form has no bytes");
    }
    return of(bytes);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof UniqueId id && Arrays.equals(bytes, id.bytes);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(bytes);
  }

  @Override
  public String toString() {
    return "UniqueId[#%08x]".formatted(hashCode());
  }
}
