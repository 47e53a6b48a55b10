package io.nccl4j.tools.perf.report;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
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
    return new Json(JsonTree.parse(text));
  }

  /**
   * {@return a field of this object; one that holds nothing where there is none}
   *
   * @param name the field's name
   */
  public Json get(String name) {
    return new Json(value instanceof Map<?, ?> map ? map.get(name) : null);
  }

  /** {@return the elements of this array; none where it is no array} */
  public List<Json> elements() {
    return value instanceof List<?> list ? list.stream().map(Json::new).toList() : List.of();
  }

  /** {@return the fields of this object by name, in order; none where it is no object} */
  public Map<String, Json> fields() {
    Map<String, Json> fields = new LinkedHashMap<>();
    if (value instanceof Map<?, ?> map) {
      map.forEach((name, field) -> fields.put((String) name, new Json(field)));
    }
    return fields;
  }

  /** {@return this text, or this number or truth value as one} */
  public Optional<String> text() {
    return switch (value) {
      case String text -> Optional.of(text);
      case Double number when number == Math.rint(number) && Math.abs(number) < 1e15 ->
          Optional.of(Long.toString(number.longValue()));
      case Double _, Long _, Boolean _ -> Optional.of(value.toString());
      case null, default -> Optional.empty();
    };
  }

  /** {@return this number, or NaN where it is none} */
  public double number() {
    return value instanceof Number number ? number.doubleValue() : Double.NaN;
  }

  /** {@return this number without a fraction, or 0 where it is none} */
  public long whole() {
    return value instanceof Number number ? number.longValue() : 0;
  }

  /** {@return whether there is anything here} */
  public boolean present() {
    return value != null;
  }
}
