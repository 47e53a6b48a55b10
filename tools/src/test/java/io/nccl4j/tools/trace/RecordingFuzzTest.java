package io.nccl4j.tools.trace;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.tools.cli.Commands;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import jdk.jfr.AnnotationElement;
import jdk.jfr.Event;
import jdk.jfr.EventFactory;
import jdk.jfr.Name;
import jdk.jfr.Recording;
import jdk.jfr.ValueDescriptor;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/**
 * Fuzzes the reading of recordings, damaged or of another release; scripts/lib/fuzz runs longer.
 */
@Tag("slow")
class RecordingFuzzTest {
  @TempDir Path folder;

  @TestFactory
  java.util.stream.Stream<DynamicTest> parserEndsAsDocumented() {
    return java.util.stream.Stream.of("recording")
        .filter(Fuzzer::selected)
        .map(name -> DynamicTest.dynamicTest(name, () -> Fuzzer.run(name, Recordings::new)));
  }

  /** Runs the command on a file: it must succeed or print one line of error. */
  private final class Recordings implements FuzzTarget {
    @Override
    public List<Sample> samples() throws IOException {
      byte[] valid = recorded(RecordingFuzzTest::reduce);
      // Caused an InternalError of the JDK's parser in the past.
      String noName =
          new String(valid, StandardCharsets.ISO_8859_1)
              .replace("jdk.ThreadDump", "jdk&ThreadDump");
      return List.of(
          Sample.opaque(valid),
          Sample.opaque(noName.getBytes(StandardCharsets.ISO_8859_1)),
          Sample.opaque(recorded(() -> other("Collective"))),
          Sample.opaque(recorded(() -> other("Process"))),
          Sample.opaque(
              recorded(
                  () -> {
                    reduce();
                    other("Communicator", "communicator", "step", "name", "error", "uniqueId");
                  })));
    }

    private byte[] recorded(Runnable program) throws IOException {
      Path file = folder.resolve("valid.jfr");
      try (Recording recording = new Recording()) {
        recording.start();
        program.run();
        recording.stop();
        recording.dump(file);
      }
      return Files.readAllBytes(file);
    }

    @Override
    public void read(byte[] input) throws IOException {
      Path file = Files.write(folder.resolve("input.jfr"), input);
      ByteArrayOutputStream err = new ByteArrayOutputStream();
      int status =
          Trace.run(
              new PrintStream(new ByteArrayOutputStream(), false, StandardCharsets.UTF_8),
              new PrintStream(err, true, StandardCharsets.UTF_8),
              file.toString(),
              "-o",
              folder.resolve("trace.json").toString());
      String message = err.toString(StandardCharsets.UTF_8);
      boolean explained = status == Commands.FAILED && message.lines().count() == 1;
      if (status != Commands.OK && !explained) {
        throw new AssertionError("status " + status + ": " + message);
      }
    }

    /** If its parser cannot be created, the JDK closes a file only when it is garbage-collected. */
    @Override
    public void check() {
      System.gc();
    }

    @Override
    public List<Class<? extends Exception>> documented() {
      return List.of();
    }

    @Override
    public long maxAllocated(int inputBytes) {
      return (128L << 20) + 64L * inputBytes;
    }
  }

  private static void reduce() {
    try (Backend backend = Backend.reference(1);
        Communicator communicator =
            backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
        Stream stream = communicator.newStream();
        Buffer value = communicator.newBuffer(DataType.INT32, 1)) {
      communicator.allReduce(value, value, ReduceOp.SUM, stream);
      stream.synchronize();
    }
  }

  /** Commits an event with a name of ours and these string fields, all null. */
  private static void other(String name, String... texts) {
    EventFactory factory =
        EventFactory.create(
            List.of(new AnnotationElement(Name.class, "io.nccl4j." + name)),
            Arrays.stream(texts).map(text -> new ValueDescriptor(String.class, text)).toList());
    Event event = factory.newEvent();
    event.begin();
    event.commit();
    factory.unregister();
  }
}
