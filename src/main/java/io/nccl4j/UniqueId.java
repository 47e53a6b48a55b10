package io.nccl4j;

import java.io.InvalidObjectException;
import java.io.Serializable;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Objects;

/**
 * The id that all ranks of one communicator share before it exists: one rank makes it with {@link
 * Backend#newUniqueId}, every rank gets a copy (see {@code io.nccl4j.rendezvous}) and passes it to
 * {@link Backend#newCommunicator}. An id says which backend made it: a rank on the other backend is
 * refused.
 *
 * <p>Immutable. Anyone who knows the bytes can join the communicator, so {@link #toString} shows
 * only a short fingerprint.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclUniqueId">ncclUniqueId</a>
 */
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
   * Makes an id from its bytes, which are copied.
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
          "bytes are all zero; no unique id is, so the exchange has failed");
    }
    return new UniqueId(bytes.clone());
  }

  /**
   * Makes an id from the text that {@link #toHex} returned.
   *
   * @param hex {@code 2 * BYTES} hexadecimal digits
   * @return the id
   * @throws IllegalArgumentException if the text is anything else
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
   * Checks what a forged or damaged serial form could break.
   *
   * @return an id of a copy of the bytes
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
