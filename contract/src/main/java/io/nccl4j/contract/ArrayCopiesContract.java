package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Copies between buffers and the arrays of Java. */
abstract class ArrayCopiesContract {
  abstract BackendUnderTest underTest();

  @Test
  void arraysAreCopiedThereAndBack() {
    try (Backend backend = underTest().open(1);
        Stream stream = backend.newStream(0);
        Buffer floats = backend.newBuffer(0, DataType.FLOAT32, 3);
        Buffer doubles = backend.newBuffer(0, DataType.FLOAT64, 3);
        Buffer ints = backend.newBuffer(0, DataType.INT32, 3);
        Buffer unsigned = backend.newBuffer(0, DataType.UINT32, 1);
        Buffer longs = backend.newBuffer(0, DataType.INT64, 2);
        Buffer unsignedLongs = backend.newBuffer(0, DataType.UINT64, 1);
        Buffer bytes = backend.newBuffer(0, DataType.INT8, 3);
        Buffer unsignedBytes = backend.newBuffer(0, DataType.UINT8, 1)) {
      float[] f = {1, -0.0f, Float.MIN_VALUE};
      double[] d = {Math.PI, Double.MAX_VALUE, -1};
      int[] i = {Integer.MIN_VALUE, 0, 7};
      floats.copyFromAsync(f, stream);
      doubles.copyFromAsync(d, stream);
      ints.copyFromAsync(i, stream);
      unsigned.copyFromAsync(new int[] {-1}, stream);
      long[] l = {Long.MIN_VALUE, 7};
      byte[] b = {Byte.MIN_VALUE, 0, 7};
      longs.copyFromAsync(l, stream);
      unsignedLongs.copyFromAsync(new long[] {-1}, stream);
      bytes.copyFromAsync(b, stream);
      unsignedBytes.copyFromAsync(new byte[] {-1}, stream);
      f[0] = 2; // the contents are taken before the copy returns
      float[] backF = new float[3];
      double[] backD = new double[3];
      int[] backI = new int[3];
      int[] backU = new int[1];
      floats.copyTo(backF, stream);
      doubles.copyTo(backD, stream);
      ints.copyTo(backI, stream);
      unsigned.copyTo(backU, stream);
      assertArrayEquals(new float[] {1, -0.0f, Float.MIN_VALUE}, backF);
      assertArrayEquals(d, backD);
      assertArrayEquals(i, backI);
      assertArrayEquals(new int[] {-1}, backU);
      long[] backL = new long[2];
      long[] backUnsignedL = new long[1];
      byte[] backB = new byte[3];
      byte[] backUnsignedB = new byte[1];
      longs.copyTo(backL, stream);
      unsignedLongs.copyTo(backUnsignedL, stream);
      bytes.copyTo(backB, stream);
      unsignedBytes.copyTo(backUnsignedB, stream);
      assertArrayEquals(l, backL);
      assertArrayEquals(new long[] {-1}, backUnsignedL);
      assertArrayEquals(b, backB);
      assertArrayEquals(new byte[] {-1}, backUnsignedB);
    }
  }

  @Test
  void arrayOfAnotherTypeIsRefused() {
    try (Backend backend = underTest().open(1);
        Stream stream = backend.newStream(0);
        Buffer halves = backend.newBuffer(0, DataType.FLOAT16, 4)) {
      assertRefused("source", "float", halves, () -> halves.copyFromAsync(new float[2], stream));
      assertRefused("source", "double", halves, () -> halves.copyFromAsync(new double[1], stream));
      assertRefused("source", "int", halves, () -> halves.copyFromAsync(new int[2], stream));
      assertRefused("source", "long", halves, () -> halves.copyFromAsync(new long[1], stream));
      assertRefused("source", "byte", halves, () -> halves.copyFromAsync(new byte[8], stream));
      assertRefused("target", "long", halves, () -> halves.copyTo(new long[1], stream));
      assertRefused("target", "byte", halves, () -> halves.copyTo(new byte[8], stream));
      assertRefused("target", "float", halves, () -> halves.copyTo(new float[2], stream));
      assertRefused("target", "double", halves, () -> halves.copyTo(new double[1], stream));
      assertRefused("target", "int", halves, () -> halves.copyTo(new int[2], stream));
    }
  }

  private static void assertRefused(String argument, String element, Buffer buffer, Executable e) {
    assertEquals(
        argument + " is an array of " + element + "; " + buffer + " has type " + buffer.type(),
        assertThrows(IllegalArgumentException.class, e).getMessage());
  }

  @Test
  void arrayOfAnotherLengthIsRefused() {
    try (Backend backend = underTest().open(1);
        Stream stream = backend.newStream(0);
        Buffer floats = backend.newBuffer(0, DataType.FLOAT32, 4)) {
      assertEquals(
          "source has 12 bytes; " + floats + " has 16",
          assertThrows(
                  IllegalArgumentException.class, () -> floats.copyFromAsync(new float[3], stream))
              .getMessage());
      assertEquals(
          "target has 20 bytes; " + floats + " has 16",
          assertThrows(IllegalArgumentException.class, () -> floats.copyTo(new float[5], stream))
              .getMessage());
    }
  }
}
