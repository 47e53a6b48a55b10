package io.nccl4j.ras;

import java.io.IOException;
import java.io.Reader;

/**
 * Reads the JSON of the RAS service value by value, so that a large answer is never in memory as a
 * whole. The caller asks for each value with its type; another one is an error.
 *
 * <p>A missing comma is accepted, since NCCL 2.28 leaves one out in each missing rank.
 */
final class JsonReader {
  private static final int END = -1;
  private static final int MAX_DEPTH = 20;
  private static final int MAX_VALUE = 10_000;

  private final Reader in;
  private int character;
  private boolean peeked;

  JsonReader(Reader in) {
    this.in = in;
  }

  /** Reads the opening bracket of an object or an array. */
  void begin(char bracket) throws IOException {
    expect(bracket);
  }

  /** Returns whether another element follows; otherwise reads the closing bracket. */
  boolean next(char bracket) throws IOException {
    if (peekValue() == ',') {
      take();
    }
    if (peekValue() != bracket) {
      return true;
    }
    take();
    return false;
  }

  /** Reads the name of a field. */
  String name() throws IOException {
    String name = string();
    expect(':');
    return name;
  }

  String string() throws IOException {
    expect('"');
    StringBuilder text = new StringBuilder();
    for (int read = take(); read != '"'; read = take()) {
      if (read < ' ') {
        throw unexpected(read, "the rest of a string");
      }
      append(text, read == '\\' ? escaped() : (char) read);
    }
    return text.toString();
  }

  private char escaped() throws IOException {
    int read = take();
    return switch (read) {
      case '"', '\\', '/' -> (char) read;
      case 'b' -> '\b';
      case 'f' -> '\f';
      case 'n' -> '\n';
      case 'r' -> '\r';
      case 't' -> '\t';
      case 'u' -> {
        int code = 0;
        for (int i = 0; i < 4; i++) {
          int digit = take();
          int value = Character.digit(digit, 16);
          if (value < 0) {
            throw unexpected(digit, "a hexadecimal digit");
          }
          code = 16 * code + value;
        }
        yield (char) code;
      }
      default -> throw unexpected(read, "an escaped character");
    };
  }

  int integer() throws IOException {
    String text = word();
    try {
      return Integer.parseInt(text);
    } catch (NumberFormatException e) {
      throw new RasException("a RAS answer has '" + text + "' where an integer belongs");
    }
  }

  /** Reads a count, of which the service prints 64 bits without a sign. */
  long count() throws IOException {
    String text = word();
    try {
      return Long.parseUnsignedLong(text);
    } catch (NumberFormatException e) {
      throw new RasException("a RAS answer has '" + text + "' where a count belongs");
    }
  }

  double decimal() throws IOException {
    String text = word();
    try {
      return Double.parseDouble(text);
    } catch (NumberFormatException e) {
      throw new RasException("a RAS answer has '" + text + "' where a number belongs");
    }
  }

  boolean bool() throws IOException {
    String text = word();
    return switch (text) {
      case "true" -> true;
      case "false" -> false;
      default ->
          throw new RasException("a RAS answer has '" + text + "' where true or false belongs");
    };
  }

  /** Reads a value that is not needed. */
  void skip() throws IOException {
    skip(0);
  }

  private void skip(int depth) throws IOException {
    if (depth > MAX_DEPTH) {
      throw new RasException("a RAS answer is nested more than " + MAX_DEPTH + " levels deep");
    }
    switch (peekValue()) {
      case '{' -> {
        take();
        while (next('}')) {
          name();
          skip(depth + 1);
        }
      }
      case '[' -> {
        take();
        while (next(']')) {
          skip(depth + 1);
        }
      }
      case '"' -> string();
      default -> word();
    }
  }

  /** Reads white space until the end of the input. */
  void end() throws IOException {
    if (peekValue() != END) {
      throw unexpected(take(), "the end");
    }
  }

  /** Reads a number or a literal. */
  private String word() throws IOException {
    StringBuilder text = new StringBuilder();
    int first = peekValue();
    for (int read = first; isWord(read); read = peek()) {
      append(text, (char) take());
    }
    if (text.isEmpty()) {
      throw unexpected(first, "a value");
    }
    return text.toString();
  }

  private static boolean isWord(int read) {
    return (read >= '0' && read <= '9')
        || (read >= 'a' && read <= 'z')
        || read == 'E'
        || read == '+'
        || read == '-'
        || read == '.';
  }

  private static void append(StringBuilder text, char read) throws IOException {
    if (text.length() == MAX_VALUE) {
      throw new RasException("a RAS answer has a value of more than " + MAX_VALUE + " characters");
    }
    text.append(read);
  }

  private void expect(char expected) throws IOException {
    int read = peekValue();
    if (read != expected) {
      throw unexpected(read, "'" + expected + "'");
    }
    take();
  }

  private static RasException unexpected(int read, String expected) {
    String found = read == END ? "ends" : "has character %d".formatted(read);
    return new RasException("a RAS answer " + found + " where " + expected + " belongs");
  }

  /** Returns the next character that is not white space, without reading it. */
  private int peekValue() throws IOException {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') {
      take();
    }
    return peek();
  }

  private int peek() throws IOException {
    if (!peeked) {
      character = in.read();
      peeked = true;
    }
    return character;
  }

  private int take() throws IOException {
    int read = peek();
    peeked = false;
    if (read == END) {
      throw unexpected(END, "more");
    }
    return read;
  }
}
