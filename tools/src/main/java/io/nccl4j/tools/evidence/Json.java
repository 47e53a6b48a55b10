package io.nccl4j.tools.evidence;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import java.io.IOException;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Trees of maps, lists, texts, numbers and booleans, to and from JSON. */
final class Json {
  private static final JsonFactory FACTORY = new JsonFactory();

  private Json() {}

  static String text(Object tree) throws IOException {
    StringWriter text = new StringWriter();
    try (JsonGenerator json =
        FACTORY.createGenerator(text).setPrettyPrinter(new DefaultPrettyPrinter())) {
      write(json, tree);
    }
    return text + "\n";
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
      case List<?> list -> {
        json.writeStartArray();
        for (Object element : list) {
          write(json, element);
        }
        json.writeEndArray();
      }
      case String string -> json.writeString(string);
      case Boolean bool -> json.writeBoolean(bool);
      case Integer number -> json.writeNumber(number);
      case Long number -> json.writeNumber(number);
      case Double number -> json.writeNumber(number);
      default -> throw new IllegalArgumentException("no JSON for a " + tree.getClass());
    }
  }

  /** Reads a tree; whole numbers come back as {@link Long}, others as {@link Double}. */
  static Object parse(String text) throws IOException {
    try (JsonParser json = FACTORY.createParser(text)) {
      json.nextToken();
      return read(json);
    }
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
      case VALUE_STRING -> json.getText();
      case VALUE_NUMBER_INT -> json.getLongValue();
      case VALUE_NUMBER_FLOAT -> json.getDoubleValue();
      case VALUE_TRUE -> true;
      case VALUE_FALSE -> false;
      case VALUE_NULL -> null;
      case null, default -> throw new IOException("JSON ends in its middle");
    };
  }
}
