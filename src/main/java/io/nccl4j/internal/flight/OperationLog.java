package io.nccl4j.internal.flight;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;

/**
 * The last operations of one rank of a communicator: a ring of records of fixed size. If it is in a
 * mapped file, another process can read it at any time, also after a crash of this one.
 *
 * <pre>
 * header, 4096 bytes   0  magic                  long
 *                      8  records in the ring    long
 *                     16  time of creation       long, nanoseconds since 1970
 *                     24  length of the text     long
 *                     32  text, lines NAME=VALUE UTF-8
 * record, 72 bytes     0  number of the record   long, from 1; 0 while it is written or invalid
 *                      8  collectives so far     long, of a collective its own number
 *                     16  number of the message  long, of a send or receive among those to the peer
 *                     24  count                  long
 *                     32  time of the call       long, nanoseconds since creation
 *                     40  time of completion     long, likewise; -(number of the record) before it
 *                     48  kind                   int, see {@link #kind}
 *                     52  root or peer, or -1    int
 *                     56  thread                 long
 *                     64  stream                 long
 * </pre>
 *
 * <p>One thread adds at a time; if others do nevertheless, each gets its own record. Any thread may
 * complete or read records. A reader skips a record that changes while it is read.
 */
public final class OperationLog {
  private static final long MAGIC = 0x4e43434c344a4631L; // "NCCL4JF1"
  private static final int HEADER = 4096;
  private static final int TEXT = 32;
  private static final int RECORD = 72;
  private static final int COMPLETED = 40;
  private static final int MAX_FRAMES = 32;

  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG;
  private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT;
  private static final VarHandle SHARED = LONG.varHandle();

  private static final StackWalker STACK = StackWalker.getInstance();

  private final MemorySegment memory;
  private final long capacity;
  private final Path file;
  private final long begin = System.nanoTime();
  private final AtomicLong last = new AtomicLong();
  // The callers' frames by record, or null if they are not recorded.
  private final StackTraceElement[][] frames;

  /**
   * One record.
   *
   * @param collectives the number of collectives so far; of a collective its own number
   * @param message the number among the messages to or from the peer, or 0
   * @param created the time of the call, in nanoseconds since 1970
   * @param completed the time of completion, or 0
   * @param frames the frames of the call, the innermost first
   */
  record Entry(
      long record,
      long collectives,
      long message,
      long count,
      long created,
      long completed,
      int kind,
      int peer,
      long thread,
      long stream,
      List<StackTraceElement> frames) {}

  private OperationLog(MemorySegment memory, long capacity, Path file, boolean withFrames) {
    this.memory = memory;
    this.capacity = capacity;
    this.file = file;
    this.frames = withFrames ? new StackTraceElement[(int) capacity][] : null;
  }

  /**
   * Creates an empty log, in a mapped file if one can be created, else in this process's memory.
   *
   * @param about what is known about the rank, at most 4,064 bytes; values without line breaks
   * @param capacity the number of records
   * @param withFrames whether the frames of the callers are kept, in this process's memory
   */
  public static OperationLog create(Map<String, String> about, int capacity, boolean withFrames) {
    long bytes = HEADER + (long) capacity * RECORD;
    LogFolder.Mapped mapped = LogFolder.create(bytes);
    OperationLog log =
        mapped == null
            ? new OperationLog(
                MemorySegment.ofArray(new long[(int) (bytes / Long.BYTES)]),
                capacity,
                null,
                withFrames)
            : new OperationLog(mapped.memory(), capacity, mapped.file(), withFrames);
    log.writeHeader(about);
    return log;
  }

  private void writeHeader(Map<String, String> about) {
    byte[] text =
        about.entrySet().stream()
            .map(each -> each.getKey() + "=" + each.getValue())
            .collect(Collectors.joining("\n"))
            .getBytes(StandardCharsets.UTF_8);
    if (text.length > HEADER - TEXT) {
      throw new IllegalArgumentException("the text has " + text.length + " bytes");
    }
    memory.set(LONG, 8, capacity);
    memory.set(LONG, 16, now());
    memory.set(LONG, 24, text.length);
    MemorySegment.copy(text, 0, memory, ValueLayout.JAVA_BYTE, TEXT, text.length);
    SHARED.setRelease(memory, 0L, MAGIC);
  }

  /** Returns the time, in nanoseconds since 1970. */
  static long now() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000_000 + now.getNano();
  }

  /** Packs the positions of an operation, a type and an operator in the lists of the header. */
  public static int kind(int operation, int type, int operator) {
    return operation | type << 8 | operator << 16;
  }

  /**
   * Adds a record.
   *
   * @param kind see {@link #kind}
   * @param peer the root or the peer, or -1
   * @param collectives the number of collectives so far; of a collective its own number
   * @param message the number of a send or receive among those to or from the peer, or 0
   * @param count the count that the C function takes
   * @param stream the number of the stream
   * @return the record
   */
  public long add(int kind, int peer, long collectives, long message, long count, long stream) {
    long record = last.incrementAndGet();
    long at = offset(record);
    SHARED.setOpaque(memory, at, 0L);
    VarHandle.storeStoreFence();
    memory.set(LONG, at + 8, collectives);
    memory.set(LONG, at + 16, message);
    memory.set(LONG, at + 24, count);
    memory.set(LONG, at + 32, System.nanoTime() - begin);
    memory.set(LONG, at + COMPLETED, -record);
    memory.set(INT, at + 48, kind);
    memory.set(INT, at + 52, peer);
    memory.set(LONG, at + 56, Thread.currentThread().threadId());
    memory.set(LONG, at + 64, stream);
    if (frames != null) {
      frames[(int) ((record - 1) % capacity)] = callers();
    }
    SHARED.setRelease(memory, at, record);
    return record;
  }

  private long offset(long record) {
    return HEADER + (record - 1) % capacity * RECORD;
  }

  /** Returns the frames outside the library. */
  private static StackTraceElement[] callers() {
    return STACK.walk(
        stack ->
            stack
                .dropWhile(frame -> frame.getClassName().startsWith("io.nccl4j."))
                .limit(MAX_FRAMES)
                .map(StackWalker.StackFrame::toStackTraceElement)
                .toArray(StackTraceElement[]::new));
  }

  /**
   * Marks a record as completed, unless a newer one has taken its place.
   *
   * @param nanos when, as {@link System#nanoTime} returns it
   */
  public void complete(long record, long nanos) {
    SHARED.compareAndSet(memory, offset(record) + COMPLETED, -record, Math.max(1, nanos - begin));
  }

  /** Removes a record: its call was rejected. */
  public void remove(long record) {
    SHARED.compareAndSet(memory, offset(record), record, 0L);
  }

  /** Deletes the file, if there is one; the log stays usable. */
  public void deleteFile() {
    if (file != null) {
      LogFolder.delete(file);
    }
  }

  /**
   * Returns the log of a file, which another process may be writing.
   *
   * @throws IOException if the file cannot be read, or is no log
   */
  public static OperationLog open(Path file) throws IOException {
    try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
      long size = channel.size();
      if (size >= HEADER) {
        MemorySegment memory = channel.map(FileChannel.MapMode.READ_ONLY, 0, size, Arena.ofAuto());
        long capacity = memory.get(LONG, 8);
        long text = memory.get(LONG, 24);
        if ((long) SHARED.getAcquire(memory, 0L) == MAGIC
            && capacity == (size - HEADER) / RECORD
            && 0 <= text
            && text <= HEADER - TEXT) {
          return new OperationLog(memory, capacity, file, false);
        }
      }
      throw new IOException(file + " is not a log of operations of this version of nccl4j");
    }
  }

  /** Returns what is known about the rank. */
  Map<String, String> about() {
    byte[] text = memory.asSlice(TEXT, memory.get(LONG, 24)).toArray(ValueLayout.JAVA_BYTE);
    return new String(text, StandardCharsets.UTF_8)
        .lines()
        .map(line -> line.split("=", 2))
        .collect(
            Collectors.toMap(
                pair -> pair[0], pair -> pair.length < 2 ? "" : pair[1], (first, _) -> first));
  }

  /** Returns how many records it can have. */
  long capacity() {
    return capacity;
  }

  /** Returns the valid records in the order of the calls. */
  List<Entry> entries() {
    List<Entry> entries = new ArrayList<>();
    for (int slot = 0; slot < capacity; slot++) {
      Entry entry = read(slot);
      if (entry != null) {
        entries.add(entry);
      }
    }
    entries.sort(Comparator.comparingLong(Entry::record));
    return entries;
  }

  private Entry read(int slot) {
    long at = HEADER + (long) slot * RECORD;
    long record = (long) SHARED.getAcquire(memory, at);
    if (record <= 0) {
      return null;
    }
    long epoch = memory.get(LONG, 16);
    long completed = memory.get(LONG, at + COMPLETED);
    StackTraceElement[] callers = frames == null ? null : frames[slot];
    Entry entry =
        new Entry(
            record,
            memory.get(LONG, at + 8),
            memory.get(LONG, at + 16),
            memory.get(LONG, at + 24),
            epoch + memory.get(LONG, at + 32),
            completed <= 0 ? 0 : epoch + completed,
            memory.get(INT, at + 48),
            memory.get(INT, at + 52),
            memory.get(LONG, at + 56),
            memory.get(LONG, at + 64),
            callers == null ? List.of() : List.of(callers));
    VarHandle.loadLoadFence();
    return (long) SHARED.getOpaque(memory, at) == record ? entry : null;
  }
}
