package io.nccl4j.tools.perf.report;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * A value of a JSON document. Missing values and values of another type read as absent, since files
 * of other programs may lack fields.
 */
public final class Json {
  private final Object value;

  private Json(Object value) {
    this.value = value;
  }

  /**
   * {@return a parsed document}
   *
   * @param text the document
   * @throws IOException if the text is not exactly one document
   */
  public static Json read(String text) throws IOException {
    return new Json(JsonTree.parse(text));
  }

  /**
   * {@return a field of this object; absent if there is none}
   *
   * @param name the field's name
   */
  public Json get(String name) {
    return new Json(value instanceof Map<?, ?> map ? map.get(name) : null);
  }

  /** {@return the elements of this array; empty if this is not an array} */
  public List<Json> elements() {
    return value instanceof List<?> list ? list.stream().map(Json::new).toList() : List.of();
  }

  /** {@return the fields of this object by name, in order; empty if this is not an object} */
  public Map<String, Json> fields() {
    Map<String, Json> fields = new LinkedHashMap<>();
    if (value instanceof Map<?, ?> map) {
      map.forEach((name, field) -> fields.put((String) name, new Json(field)));
    }
    return fields;
  }

  /** {@return this string, or this number or boolean as a string} */
  public Optional<String> text() {
    return switch (value) {
      case String text -> Optional.of(text);
      case Double number when number == Math.rint(number) && Math.abs(number) < 1e15 ->
          Optional.of(Long.toString(number.longValue()));
      case Double _, Long _, Boolean _ -> Optional.of(value.toString());
      case null, default -> Optional.empty();
    };
  }

  /** {@return this number, or NaN if this is not a number} */
  public double number() {
    return value instanceof Number number ? number.doubleValue() : Double.NaN;
  }

  /** {@return this number without its fraction, or 0 if this is not a number} */
  public long whole() {
    return value instanceof Number number ? number.longValue() : 0;
  }

  /** {@return whether this value is present and not null} */
  public boolean present() {
    return value != null;
  }
}
