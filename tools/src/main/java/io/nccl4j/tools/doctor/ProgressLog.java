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
 * The log that an {@link AllReduceProbe} writes while it runs, so that its progress is known even
 * if it hangs or crashes. It is a file because NCCL writes messages to stdout.
 *
 * @param file the log file
 */
record ProgressLog(Path file) {
  /** A step begins: its description. */
  static final String STEP = "step";

  /** A call of the CUDA runtime failed: function, error name, message. */
  static final String CUDA_FAILURE = "cuda failure";

  /** A library was not found: its label, the first line of the message. */
  static final String MISSING = "missing";

  /** One attempt to find the missing library. */
  static final String ATTEMPT = "attempt";

  /** Java denied native access: its message. */
  static final String REFUSED = "refused";

  /** Another failure: its message. */
  static final String FAILURE = "failure";

  /** The newest CUDA version that the driver supports, such as 13000; 0 for no driver. */
  static final String DRIVER = "driver";

  /** A library was loaded: the name of a version or file, and its value. */
  static final String VERSION = "version";

  /** A device: index, name, compute capability. */
  static final String DEVICE = "device";

  /** A library file mapped into the process: label, path. */
  static final String MAPPED = "mapped";

  /** The all-reduce was correct: the number of sums, the milliseconds since the first call. */
  static final String RIGHT = "right";

  /** The all-reduce produced a wrong sum: its position and value. */
  static final String WRONG = "wrong";

  /** Appends a line. */
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

  /** Returns the fields of every complete line of a kind. */
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
