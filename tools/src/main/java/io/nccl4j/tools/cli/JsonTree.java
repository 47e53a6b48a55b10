package io.nccl4j.tools.cli;

import com.fasterxml.jackson.core.JacksonException;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonLocation;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Reads and writes JSON as a tree of maps, lists, strings, numbers, booleans and null. A stream is
 * written as a list, without holding all its elements.
 */
public final class JsonTree {
  private static final JsonFactory FACTORY = new JsonFactory();

  private JsonTree() {}

  /**
   * {@return an object}
   *
   * @param fields the name of each field, followed by its value
   */
  public static Map<String, Object> object(Object... fields) {
    Map<String, Object> object = new LinkedHashMap<>();
    for (int i = 0; i < fields.length; i += 2) {
      object.put((String) fields[i], fields[i + 1]);
    }
    return object;
  }

  /**
   * {@return a tree as indented JSON}
   *
   * @param tree the tree
   */
  public static String text(Object tree) {
    return text(tree, new DefaultPrettyPrinter());
  }

  /**
   * {@return a tree as JSON in one line, escaped for a script element of an HTML page}
   *
   * @param tree the tree
   */
  public static String script(Object tree) {
    return text(tree, null).replace("<", "\\u003c");
  }

  /**
   * Writes a tree as JSON in one line.
   *
   * @param to the writer, which stays open
   * @param tree the tree
   * @throws IOException if writing fails
   */
  public static void write(Writer to, Object tree) throws IOException {
    write(to, tree, null);
  }

  private static void write(Writer to, Object tree, DefaultPrettyPrinter printer)
      throws IOException {
    try (JsonGenerator json = FACTORY.createGenerator(to).setPrettyPrinter(printer)) {
      json.disable(JsonGenerator.Feature.AUTO_CLOSE_TARGET);
      write(json, tree);
    }
  }

  private static String text(Object tree, DefaultPrettyPrinter printer) {
    StringWriter text = new StringWriter();
    try {
      write(text, tree, printer);
    } catch (IOException e) {
      throw new UncheckedIOException("writing to memory cannot fail", e);
    }
    return text.toString();
  }

  private static void write(JsonGenerator json, Object tree) throws IOException {
    switch (tree) {
      case null -> json.writeNull();
      case Map<?, ?> map -> {
        json.writeStartObject();
        for (Map.Entry<?, ?> entry : map.entrySet()) {
          json.writeFieldName((String) entry.getKey());
          write(json, entry.getValue());
        }
        json.writeEndObject();
      }
      case List<?> list -> write(json, list.iterator());
      case Stream<?> stream -> write(json, stream.iterator());
      case String string -> json.writeString(string);
      case Boolean bool -> json.writeBoolean(bool);
      case Integer number -> json.writeNumber(number);
      case Long number -> json.writeNumber(number);
      case Double number -> json.writeNumber(number);
      default -> throw new IllegalArgumentException("no JSON for " + tree.getClass());
    }
  }

  private static void write(JsonGenerator json, Iterator<?> elements) throws IOException {
    json.writeStartArray();
    while (elements.hasNext()) {
      write(json, elements.next());
    }
    json.writeEndArray();
  }

  /**
   * {@return the tree of a document} Integers are {@link Long}; larger and other numbers are {@link
   * Double}.
   *
   * @param text the document
   * @throws IOException if the text is not exactly one document
   */
  public static Object parse(String text) throws IOException {
    try (JsonParser json = FACTORY.createParser(text)) {
      if (json.nextToken() == null) {
        throw new IOException("it is empty");
      }
      Object document = read(json);
      if (json.nextToken() != null) {
        throw new IOException("something follows its end");
      }
      return document;
    } catch (JacksonException e) {
      // The full message also has the parser's settings.
      throw new IOException(position(e.getLocation()) + e.getOriginalMessage(), e);
    }
  }

  /** Formats a location. Documents that are too large or too deep have none. */
  private static String position(JsonLocation at) {
    return at == null ? "" : "line %d, column %d: ".formatted(at.getLineNr(), at.getColumnNr());
  }

  private static Object read(JsonParser json) throws IOException {
    return switch (json.currentToken()) {
      case START_OBJECT -> {
        Map<String, Object> map = new LinkedHashMap<>();
        while (json.nextToken() != JsonToken.END_OBJECT) {
          String name = json.currentName();
          json.nextToken();
          map.put(name, read(json));
        }
        yield map;
      }
      case START_ARRAY -> {
        List<Object> list = new ArrayList<>();
        while (json.nextToken() != JsonToken.END_ARRAY) {
          list.add(read(json));
        }
        yield list;
      }
      case VALUE_NUMBER_INT -> whole(json);
      case VALUE_NUMBER_FLOAT -> json.getDoubleValue();
      case VALUE_TRUE -> true;
      case VALUE_FALSE -> false;
      case VALUE_NULL -> null;
      default -> json.getText();
    };
  }

  private static Object whole(JsonParser json) throws IOException {
    if (json.getNumberType() == JsonParser.NumberType.BIG_INTEGER) {
      return json.getDoubleValue();
    }
    return json.getLongValue();
  }
}
