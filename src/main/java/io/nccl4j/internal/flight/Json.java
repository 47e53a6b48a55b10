package io.nccl4j.internal.flight;

import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Writes a tree as JSON. */
final class Json {
  private Json() {}

  static String of(Object tree) {
    return switch (tree) {
      case null -> "null";
      case String value -> quoted(value);
      case List<?> list -> list.stream().map(Json::of).collect(Collectors.joining(",", "[", "]"));
      case Map<?, ?> map ->
          map.entrySet().stream()
              .map(each -> quoted(each.getKey().toString()) + ":" + of(each.getValue()))
              .collect(Collectors.joining(",\n", "{", "}"));
      default -> tree.toString();
    };
  }

  private static String quoted(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (int i = 0; i < text.length(); i++) {
      char each = text.charAt(i);
      if (each == '"' || each == '\\') {
        quoted.append('\\').append(each);
      } else if (each < ' ') {
        quoted.append("\\u%04x".formatted((int) each));
      } else {
        quoted.append(each);
      }
    }
    return quoted.append('"').toString();
  }
}
