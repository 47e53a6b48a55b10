package io.nccl4j.plugin;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.nccl4j.Operation;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SequencedMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;

/** NCCL's tuner interface, version 5. */
final class TunerPlugin {
  static final TunerPlugin INSTANCE = new TunerPlugin();

  private final List<Tuner> tuners = new CopyOnWriteArrayList<>();
  private final Map<Long, CostTable.TunedCommunicator> communicators = new ConcurrentHashMap<>();
  private final AtomicLong keys = new AtomicLong();
  private boolean installed;

  private TunerPlugin() {}

  synchronized void add(Tuner tuner) {
    if (!installed) {
      PluginFile.install("a Tuner", "NCCL_TUNER_PLUGIN", 22803, this::tables);
      installed = true;
    }
    tuners.add(tuner);
  }

  void remove(Tuner tuner) {
    tuners.remove(tuner);
  }

  private SequencedMap<String, List<MemorySegment>> tables() {
    MethodHandles.Lookup lookup = MethodHandles.lookup();
    FunctionDescriptor init =
        FunctionDescriptor.of(
            JAVA_INT,
            Upcalls.POINTER_TO_POINTER,
            JAVA_LONG,
            JAVA_LONG,
            JAVA_LONG,
            ADDRESS,
            ADDRESS,
            ADDRESS);
    FunctionDescriptor getCollInfo =
        FunctionDescriptor.of(
            JAVA_INT,
            ADDRESS,
            JAVA_INT,
            JAVA_LONG,
            JAVA_INT,
            Upcalls.pointerTo(Long.MAX_VALUE),
            JAVA_INT,
            JAVA_INT,
            JAVA_INT,
            Upcalls.pointerTo(Integer.BYTES));
    FunctionDescriptor end = FunctionDescriptor.of(JAVA_INT, ADDRESS);
    SequencedMap<String, List<MemorySegment>> tables = new LinkedHashMap<>();
    tables.put(
        "ncclTunerPlugin_v5",
        List.of(
            Arena.global().allocateFrom("nccl4j"),
            Upcalls.stub(lookup, this, "init", init),
            Upcalls.stub(lookup, this, "getCollInfo", getCollInfo),
            Upcalls.stub(lookup, this, "end", end)));
    return tables;
  }

  int init(
      MemorySegment context,
      long communicator,
      long ranks,
      long nodes,
      MemorySegment logger,
      MemorySegment domains,
      MemorySegment constants) {
    long key = keys.incrementAndGet();
    communicators.put(key, new CostTable.TunedCommunicator(communicator, ranks, nodes));
    context.set(ADDRESS, 0, MemorySegment.ofAddress(key));
    return Upcalls.SUCCESS;
  }

  int getCollInfo(
      MemorySegment context,
      int function,
      long bytes,
      int grouped,
      MemorySegment table,
      int algorithms,
      int protocols,
      int registered,
      MemorySegment channels) {
    CostTable.TunedCommunicator communicator = communicators.get(context.address());
    Operation operation = operation(function);
    if (communicator == null || operation == null || tuners.isEmpty()) {
      return Upcalls.SUCCESS;
    }
    // A copy, so that a tuner that throws has changed nothing.
    MemorySegment costs = table.asSlice(0, (long) algorithms * protocols * Float.BYTES);
    CostTable copy =
        new CostTable(
            communicator,
            operation,
            bytes,
            grouped,
            registered != 0,
            costs.toArray(JAVA_FLOAT),
            protocols);
    tuners.forEach(tuner -> tuner.tune(copy));
    costs.copyFrom(MemorySegment.ofArray(copy.costs()));
    if (copy.chosenChannels() > 0) {
      channels.set(JAVA_INT, 0, copy.chosenChannels());
    }
    return Upcalls.SUCCESS;
  }

  /** Returns the operation of a function's number, or null for one that is no collective. */
  private static Operation operation(int function) {
    return switch (function) {
      case 0 -> Operation.BROADCAST;
      case 1 -> Operation.REDUCE;
      case 2 -> Operation.ALL_GATHER;
      case 3 -> Operation.REDUCE_SCATTER;
      case 4 -> Operation.ALL_REDUCE;
      default -> null;
    };
  }

  int end(MemorySegment context) {
    communicators.remove(context.address());
    return Upcalls.SUCCESS;
  }
}
