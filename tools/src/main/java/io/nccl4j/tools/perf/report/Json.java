package io.nccl4j.tools.perf.report;

import com.fasterxml.jackson.core.JacksonException;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonLocation;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * One value of a JSON document. What is missing or of another kind reads as absent, since files of
 * other programs may lack something.
 */
public final class Json {
  private final Object value;

  private Json(Object value) {
    this.value = value;
  }

  /**
   * {@return the document that a text is}
   *
   * @param text the text
   * @throws IOException if it is not one whole document
   */
  public static Json read(String text) throws IOException {
    try (JsonParser parser = new JsonFactory().createParser(text)) {
      if (parser.nextToken() == null) {
        throw new IOException("it is empty");
      }
      Json document = new Json(value(parser));
      if (parser.nextToken() != null) {
        throw new IOException("something follows its end");
      }
      return document;
    } catch (JacksonException e) {
      // Its whole message tells of the parser's settings too.
      throw new IOException(place(e.getLocation()) + e.getOriginalMessage(), e);
    }
  }

  /** Says where, but for what is too large or too deep to be read: that has no place. */
  private static String place(JsonLocation at) {
    return at == null ? "" : "line %d, column %d: ".formatted(at.getLineNr(), at.getColumnNr());
  }

  private static Object value(JsonParser parser) throws IOException {
    return switch (parser.currentToken()) {
      case START_OBJECT -> {
        Map<String, Json> map = new LinkedHashMap<>();
        while (parser.nextToken() != JsonToken.END_OBJECT) {
          String name = parser.currentName();
          parser.nextToken();
          map.put(name, new Json(value(parser)));
        }
        yield map;
      }
      case START_ARRAY -> {
        List<Json> list = new ArrayList<>();
        while (parser.nextToken() != JsonToken.END_ARRAY) {
          list.add(new Json(value(parser)));
        }
        yield list;
      }
      case VALUE_NUMBER_INT, VALUE_NUMBER_FLOAT -> parser.getDoubleValue();
      case VALUE_TRUE -> true;
      case VALUE_FALSE -> false;
      case VALUE_NULL -> null;
      default -> parser.getText();
    };
  }

  /**
   * {@return a field of this object; one that holds nothing where there is none}
   *
   * @param name the field's name
   */
  public Json get(String name) {
    return value instanceof Map<?, ?> map && map.get(name) instanceof Json json
        ? json
        : new Json(null);
  }

  /** {@return the elements of this array; none where it is no array} */
  public List<Json> elements() {
    List<Json> elements = new ArrayList<>();
    if (value instanceof List<?> list) {
      list.forEach(element -> elements.add((Json) element));
    }
    return elements;
  }

  /** {@return the fields of this object by name, in order; none where it is no object} */
  public Map<String, Json> fields() {
    Map<String, Json> fields = new LinkedHashMap<>();
    if (value instanceof Map<?, ?> map) {
      map.forEach((name, field) -> fields.put((String) name, (Json) field));
    }
    return fields;
  }

  /** {@return this text, or this number or truth value as one} */
  public Optional<String> text() {
    return switch (value) {
      case String text -> Optional.of(text);
      case Double number when number == Math.rint(number) && Math.abs(number) < 1e15 ->
          Optional.of(Long.toString(number.longValue()));
      case Double number -> Optional.of(number.toString());
      case Boolean truth -> Optional.of(truth.toString());
      case null, default -> Optional.empty();
    };
  }

  /** {@return this number, or NaN where it is none} */
  public double number() {
    return value instanceof Double number ? number : Double.NaN;
  }

  /** {@return this number without a fraction, or 0 where it is none} */
  public long whole() {
    return value instanceof Double number ? number.longValue() : 0;
  }

  /** {@return whether there is anything here} */
  public boolean present() {
    return value != null;
  }
}
