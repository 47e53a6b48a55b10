package io.nccl4j.tools.doctor;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * What a trial writes down while it runs, line by line, so that what it had reached is known even
 * where it hangs or crashes. It is a file, because NCCL writes its own messages to stdout.
 *
 * @param file where it is kept
 */
record ProgressLog(Path file) {
  /** What is begun. */
  static final String STEP = "step";

  /** A call of the CUDA runtime failed: function, error name, message. */
  static final String CUDA_FAILURE = "cuda failure";

  /** A library was not found: its label, the message's first line. */
  static final String MISSING = "missing";

  /** One attempt to find the missing library, as one line. */
  static final String ATTEMPT = "attempt";

  /** Java refused native access: its message. */
  static final String REFUSED = "refused";

  /** Anything else failed: its message. */
  static final String FAILURE = "failure";

  /** The newest CUDA that the driver runs, such as 13000; 0 for no driver. */
  static final String DRIVER = "driver";

  /** Of a library that was loaded: release or file, by name. */
  static final String VERSION = "version";

  /** A device: index, name, compute capability. */
  static final String DEVICE = "device";

  /** A file of one of the libraries that is mapped into the process. */
  static final String MAPPED = "mapped";

  /** The all-reduce gave the right sums: how many, and the milliseconds from the first call on. */
  static final String RIGHT = "right";

  /** The all-reduce gave a wrong sum: where and what. */
  static final String WRONG = "wrong";

  /** Adds a line. */
  void write(String kind, Object... fields) {
    StringBuilder line = new StringBuilder(kind);
    for (Object field : fields) {
      line.append('\t')
          .append(field.toString().replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t"));
    }
    try {
      Files.writeString(
          file, line.append('\n'), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns the fields of every whole line of a kind. */
  List<List<String>> entries(String kind) {
    List<List<String>> entries = new ArrayList<>();
    try {
      if (!Files.exists(file)) {
        return entries;
      }
      String text = Files.readString(file);
      for (String line : text.substring(0, text.lastIndexOf('\n') + 1).lines().toList()) {
        List<String> fields = List.of(line.split("\t", -1));
        if (fields.getFirst().equals(kind)) {
          entries.add(fields.stream().skip(1).map(String::translateEscapes).toList());
        }
      }
      return entries;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns the fields of the last line of a kind. */
  Optional<List<String>> last(String kind) {
    List<List<String>> entries = entries(kind);
    return entries.isEmpty() ? Optional.empty() : Optional.of(entries.getLast());
  }
}
