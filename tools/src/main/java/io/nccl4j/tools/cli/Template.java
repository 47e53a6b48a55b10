package io.nccl4j.tools.cli;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;

/** Reads the pages that tools insert their data into. */
public final class Template {
  private Template() {}

  /**
   * {@return the text of a resource with data in place of {@code @DATA@}}
   *
   * @param owner a class of its package
   * @param name its file name
   * @param data the data, a tree of JSON
   * @throws IOException if this program's resources are incomplete
   */
  public static String read(Class<?> owner, String name, Object data) throws IOException {
    return read(owner, name).replace("@DATA@", JsonTree.script(data));
  }

  /**
   * {@return the text of a resource}
   *
   * @param owner a class of its package
   * @param name its file name
   * @throws IOException if this program's resources are incomplete
   */
  public static String read(Class<?> owner, String name) throws IOException {
    try (InputStream in = owner.getResourceAsStream(name)) {
      if (in == null) {
        throw new IOException(name + " is missing from this program");
      }
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }
}
