package io.nccl4j;

/**
 * The checks that more than one class of the contract makes of its arguments. Messages name
 * argument, value and rule.
 */
final class Arguments {
  private Arguments() {}

  static int notNegative(int value, String argument) {
    if (value < 0) {
      throw new IllegalArgumentException(argument + " is " + value + "; it must be 0 or more");
    }
    return value;
  }

  static void rankWithin(int value, int size, String argument) {
    if (value < 0 || value >= size) {
      throw new IllegalArgumentException(
          argument + " is " + value + "; it must be from 0 to " + (size - 1));
    }
  }

  /** Returns the size of so many elements in bytes, if it is a possible one. */
  static long byteSize(DataType type, long count) {
    if (count < 0) {
      throw new IllegalArgumentException("count is " + count + "; it must be 0 or more");
    }
    if (count > Long.MAX_VALUE / type.bytes()) {
      throw new IllegalArgumentException(
          "count is " + count + "; so many elements of " + type + " have no size in bytes");
    }
    return count * type.bytes();
  }

  static void sameType(Buffer buffer, String argument, Buffer other, String otherArgument) {
    if (buffer.type() != other.type()) {
      throw new IllegalArgumentException(
          argument + " has type " + buffer.type() + "; " + otherArgument + " has " + other.type());
    }
  }
}
