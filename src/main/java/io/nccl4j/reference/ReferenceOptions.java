package io.nccl4j.reference;

import java.util.Objects;

/**
 * What a {@link ReferenceBackend} does its work with. All ranks of a communicator must have the
 * same options, since they decide which rank combines which element in which order.
 *
 * @param algorithm how an all-reduce is carried out
 * @param channels into how many contiguous parts an all-reduce divides its data, from 1 to 32; the
 *     two trees take turns at them, so that two or more use both
 * @param chunkBytes the size of a ring chunk, a positive multiple of 512: each loop around the ring
 *     moves one chunk for each rank. NCCL's Simple protocol has 2 MiB
 * @param sliceBytes how much of a chunk is handed over at a time, a positive multiple of 512; it
 *     changes speed, never results
 */
public record ReferenceOptions(Algorithm algorithm, int channels, int chunkBytes, int sliceBytes) {
  private static final int MOST_CHANNELS = 32;
  private static final int ALIGNMENT = 512;
  private static final ReferenceOptions DEFAULTS =
      new ReferenceOptions(Algorithm.AUTO, 2, 2 << 20, 128 << 10);

  /**
   * Checks the values.
   *
   * @throws IllegalArgumentException if a number is out of its range
   */
  public ReferenceOptions {
    Objects.requireNonNull(algorithm, "algorithm");
    if (channels < 1 || channels > MOST_CHANNELS) {
      throw new IllegalArgumentException(
          "channels is " + channels + "; it must be from 1 to " + MOST_CHANNELS);
    }
    checkBytes(chunkBytes, "chunkBytes");
    checkBytes(sliceBytes, "sliceBytes");
  }

  private static void checkBytes(int bytes, String argument) {
    if (bytes < ALIGNMENT || bytes % ALIGNMENT != 0) {
      throw new IllegalArgumentException(
          argument + " is " + bytes + "; it must be a positive multiple of " + ALIGNMENT);
    }
  }

  /**
   * {@return the options that suit most programs: {@link Algorithm#AUTO}, 2 channels, chunks of 2
   * MiB, slices of 128 KiB}
   */
  public static ReferenceOptions defaults() {
    return DEFAULTS;
  }

  /**
   * {@return a copy with another algorithm}
   *
   * @param value how an all-reduce is carried out
   */
  public ReferenceOptions withAlgorithm(Algorithm value) {
    return new ReferenceOptions(value, channels, chunkBytes, sliceBytes);
  }

  /**
   * {@return a copy with another number of channels}
   *
   * @param value how many channels, from 1 to 32
   * @throws IllegalArgumentException if the value is out of its range
   */
  public ReferenceOptions withChannels(int value) {
    return new ReferenceOptions(algorithm, value, chunkBytes, sliceBytes);
  }

  /**
   * {@return a copy with another chunk size}
   *
   * @param value the size of a ring chunk in bytes, a positive multiple of 512
   * @throws IllegalArgumentException if the value is out of its range
   */
  public ReferenceOptions withChunkBytes(int value) {
    return new ReferenceOptions(algorithm, channels, value, sliceBytes);
  }

  /**
   * {@return a copy with another slice size}
   *
   * @param value the size of a slice in bytes, a positive multiple of 512
   * @throws IllegalArgumentException if the value is out of its range
   */
  public ReferenceOptions withSliceBytes(int value) {
    return new ReferenceOptions(algorithm, channels, chunkBytes, value);
  }
}
