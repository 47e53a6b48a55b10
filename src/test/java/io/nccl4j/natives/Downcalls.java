package io.nccl4j.natives;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Records which native functions a process calls through the bindings, for {@code
 * docs/api-coverage.md}: the bindings print each call where {@code -Djextract.trace.downcalls=true}
 * is set, and {@code -Dtest.downcalls=FILE} names the file that gets each name once. What they
 * print is taken out of the output.
 */
public final class Downcalls implements BeforeAllCallback {
  private static boolean recording;

  @Override
  public void beforeAll(ExtensionContext context) throws IOException {
    String file = System.getProperty("test.downcalls");
    synchronized (Downcalls.class) {
      if (file != null && !recording) {
        Path path = Path.of(file);
        Files.createDirectories(path.toAbsolutePath().getParent());
        System.setOut(new PrintStream(new Sieve(System.out, path), true, StandardCharsets.UTF_8));
        recording = true;
      }
    }
  }

  /** Passes lines on, but for those that tell of a call. */
  private static final class Sieve extends OutputStream {
    private static final Pattern CALL = Pattern.compile("((?:nccl|cuda)[A-Z]\\w*)\\(.*\\)");

    private final PrintStream out;
    private final Path file;
    private final Set<String> recorded = new HashSet<>();
    private final ByteArrayOutputStream line = new ByteArrayOutputStream();

    Sieve(PrintStream out, Path file) {
      this.out = out;
      this.file = file;
    }

    @Override
    public synchronized void write(int octet) throws IOException {
      line.write(octet);
      if (octet != '\n') {
        return;
      }
      String text = line.toString(StandardCharsets.UTF_8);
      line.reset();
      Matcher call = CALL.matcher(text.strip());
      if (!call.matches()) {
        out.print(text);
      } else if (recorded.add(call.group(1))) {
        Files.writeString(
            file,
            call.group(1) + "\n",
            StandardOpenOption.CREATE,
            StandardOpenOption.WRITE,
            StandardOpenOption.APPEND);
      }
    }
  }
}
