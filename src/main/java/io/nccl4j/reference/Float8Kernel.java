package io.nccl4j.reference;

import io.nccl4j.DataType;
import io.nccl4j.MiniFloat;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.EnumMap;
import java.util.Map;

/**
 * 8-bit floating-point numbers of either format. Each step computes in binary16, as NCCL does, and
 * saturates back. There are so few pairs of numbers that every result is looked up.
 */
final class Float8Kernel extends ArrayKernel<byte[]> {
  private static final Map<Operator.Kind, byte[]> E4M3 = new EnumMap<>(Operator.Kind.class);
  private static final Map<Operator.Kind, byte[]> E5M2 = new EnumMap<>(Operator.Kind.class);

  private static final VarHandle WORD =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  /** Every other byte of a word, beginning with the lowest. */
  private static final long EVEN = 0x00FF00FF00FF00FFL;

  private final boolean e4m3;
  private final Map<Operator.Kind, byte[]> tables = new EnumMap<>(Operator.Kind.class);
  private byte[] multiples;
  private byte multiplesOf;

  Float8Kernel(DataType type) {
    super(1, new byte[TILE_BYTES], new byte[TILE_BYTES], MemorySegment::ofArray, TILE_BYTES);
    this.e4m3 = type == DataType.FLOAT8E4M3;
  }

  @Override
  void sum(byte[] left, byte[] right, int count) {
    lookUp(Operator.Kind.SUM, left, right, count);
  }

  @Override
  void prod(byte[] left, byte[] right, int count) {
    lookUp(Operator.Kind.PROD, left, right, count);
  }

  @Override
  void max(Tile<byte[]> left, Tile<byte[]> right, int count) {
    lookUp(Operator.Kind.MAX, left.array(), right.array(), count);
  }

  @Override
  void min(Tile<byte[]> left, Tile<byte[]> right, int count) {
    lookUp(Operator.Kind.MIN, left.array(), right.array(), count);
  }

  @Override
  void scale(byte[] tile, long factor, int count) {
    byte by = (byte) factor;
    if (by != multiplesOf || multiples == null) {
      multiples = new byte[256];
      for (int value = 0; value < multiples.length; value++) {
        multiples[value] = narrow(widen((byte) value) * widen(by));
      }
      multiplesOf = by;
    }
    for (int i = 0; i < count; i++) {
      tile[i] = multiples[tile[i] & 0xFF];
    }
  }

  private void lookUp(Operator.Kind kind, byte[] left, byte[] right, int count) {
    byte[] results = tables.get(kind);
    if (results == null) {
      results = sharedTable(kind);
      tables.put(kind, results);
    }
    // Arrays are whole words long, and what lies behind the last element is nobody's.
    for (int i = 0; i < count; i += Long.BYTES) {
      long word = lookUp(results, (long) WORD.get(left, i), (long) WORD.get(right, i));
      WORD.set(left, i, word);
    }
  }

  /** Looks up eight pairs: a pair of bytes side by side is the place of its result. */
  private static long lookUp(byte[] results, long left, long right) {
    long even = (left & EVEN) << 8 | (right & EVEN);
    long odd = (left & ~EVEN) | (right >>> 8 & EVEN);
    return at(results, even)
        | at(results, even >>> 16) << 16
        | at(results, even >>> 32) << 32
        | at(results, even >>> 48) << 48
        | at(results, odd) << 8
        | at(results, odd >>> 16) << 24
        | at(results, odd >>> 32) << 40
        | at(results, odd >>> 48) << 56;
  }

  private static long at(byte[] results, long place) {
    return results[(int) place & 0xFFFF] & 0xFFL;
  }

  /** Returns the results of all pairs, which all ranks of the process share. */
  private byte[] sharedTable(Operator.Kind kind) {
    Map<Operator.Kind, byte[]> shared = e4m3 ? E4M3 : E5M2;
    synchronized (shared) {
      return shared.computeIfAbsent(kind, this::table);
    }
  }

  private byte[] table(Operator.Kind kind) {
    byte[] results = new byte[1 << 16];
    for (int pair = 0; pair < results.length; pair++) {
      results[pair] = narrow(combine(kind, widen((byte) (pair >> 8)), widen((byte) pair)));
    }
    return results;
  }

  private static float combine(Operator.Kind kind, float left, float right) {
    return switch (kind) {
      case SUM -> left + right;
      case PROD -> left * right;
      case MAX -> Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.max(left, right);
      case MIN -> Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.min(left, right);
      default -> throw new IllegalArgumentException("not a way to combine: " + kind);
    };
  }

  private float widen(byte bits) {
    return e4m3 ? MiniFloat.fromFloat8e4m3(bits) : MiniFloat.fromFloat8e5m2(bits);
  }

  private byte narrow(float value) {
    float half = MiniFloat.fromFloat16(MiniFloat.toFloat16(value));
    return e4m3 ? MiniFloat.toFloat8e4m3(half) : MiniFloat.toFloat8e5m2(half);
  }
}
