package io.nccl4j.snippets;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NativeLibraryLookup;
import io.nccl4j.NcclException;
import io.nccl4j.Recovery;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.reference.Algorithm;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.reference.ReferenceOptions;
import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.training.GradientReducer;
import io.nccl4j.training.Parameter;
import io.nccl4j.training.ReducerConfig;
import io.nccl4j.training.Shard;
import io.nccl4j.training.ShardedReducer;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/**
 * Runs code that the Javadoc and the pages in docs show. {@code DocumentationTest} checks that all
 * code they show is in a compiled file, such as this one.
 */
class SnippetsTest {
  private static final int COUNT = 1000;

  private record Batch(float gradient) {}

  private final AtomicInteger trained = new AtomicInteger();
  private final Backend backend = Backend.reference(1);
  private final int worldSize = 1;
  private final int rank = 0;
  private Communicator comm = backend.newCommunicator(backend.newUniqueId(), worldSize, rank);
  private final Stream stream = comm.newStream();
  private final Buffer weight = newBuffer(0);
  private final Buffer bias = newBuffer(0);
  private final Buffer weightGradient = newBuffer(0);
  private final Buffer gradients = newBuffer(5);
  private final List<Batch> batches = List.of(new Batch(1), new Batch(2));

  private Buffer newBuffer(float value) {
    Buffer buffer = comm.newBuffer(DataType.FLOAT32, 1);
    buffer.copyFromAsync(new float[] {value}, stream);
    return buffer;
  }

  private void assertHas(float expected, Buffer buffer) {
    float[] values = new float[1];
    buffer.copyTo(values, stream);
    assertEquals(expected, values[0]);
  }

  @AfterEach
  void close() {
    backend.close();
  }

  @Test
  void backend() {
    try (Backend backend = Backend.auto()) {
      backend.runRanks(
          backend.devices().size(),
          comm -> {
            try (Stream stream = comm.newStream();
                Buffer buffer = comm.newBuffer(DataType.FLOAT32, 1024)) {
              buffer.fill((byte) 0, stream);
              comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
              stream.synchronize();
            }
          });
    }
  }

  @Test
  void referenceBackend() {
    ReferenceOptions options = ReferenceOptions.defaults().withAlgorithm(Algorithm.RING);
    try (Backend backend = ReferenceBackend.open(4, options)) {
      backend.runRanks(4, comm -> train(comm));
    }
    assertEquals(4, trained.get());
  }

  private void train(Communicator ignored) {
    trained.incrementAndGet();
  }

  @Test
  void recovery() {
    while (true) {
      try {
        train(comm);
        break;
      } catch (NcclException failure) {
        Communicator broken = comm;
        comm = Recovery.defaults().recover(broken, failure); // throws if it cannot continue
        broken.abort();
      }
    }
    assertEquals(1, trained.get());
  }

  @Test
  void prediction() {
    ReferenceOptions options =
        ReferenceOptions.defaults()
            .withAlgorithm(Algorithm.RING)
            .withLayout(
                Layout.defaults()
                    .withChannels(1)
                    .withProtocol(Protocol.LL)
                    .withRingOrders(List.of(List.of(0, 2, 1, 3))));
    Backend reference = ReferenceBackend.open(4, options);
    reference.runRanks(4, comm -> train(comm));
    reference.close();
    assertEquals(4, trained.get());
  }

  @Test
  void overlap() {
    try (Stream copies = comm.newStream();
        Event copied = comm.newEvent();
        Buffer host = comm.newPinnedBuffer(DataType.FLOAT32, COUNT);
        Buffer next = comm.newBuffer(DataType.FLOAT32, COUNT)) {
      comm.allReduce(gradients, gradients, ReduceOp.SUM, stream); // runs beside what follows
      load(host.segment()); // written in place, without an array
      host.copyToAsync(next, copies);
      copies.record(copied);
      stream.waitFor(copied);
      comm.allReduce(next, next, ReduceOp.SUM, stream); // starts when the copy has arrived
      stream.synchronize(); // before `host` is written again
    }
    assertHas(5, gradients);
  }

  private static void load(MemorySegment floats) {
    floats.setAtIndex(ValueLayout.JAVA_FLOAT, COUNT - 1, 7);
  }

  @Test
  void nativeLibraryLookup() {
    NativeLibraryLookup lookup = new BundledLibraries();
    assertEquals("libnccl.so.2", lookup.find("nccl").orElseThrow().getFileName().toString());
    assertTrue(lookup.find("cudart").isEmpty());
  }

  @Test
  void uniqueId() {
    String receivedHex = backend.newUniqueId().toHex();
    UniqueId id = rank == 0 ? backend.newUniqueId() : UniqueId.fromHex(receivedHex);
    Communicator comm = backend.newCommunicator(id, worldSize, rank);
    assertEquals(1, comm.size());
  }

  @Test
  void communicatorConfig() {
    int localRank = 3;
    CommunicatorConfig config =
        CommunicatorConfig.defaults()
            .withTimeout(Duration.ofMinutes(2))
            .withDevice(localRank)
            .withName("gradients");
    assertEquals(3, config.device().getAsInt());
  }

  @Test
  void communicator() {
    UniqueId id = backend.newUniqueId();
    float[] values = new float[1024];
    values[1023] = 7;
    try (Communicator comm = backend.newCommunicator(id, worldSize, rank);
        Stream stream = comm.newStream();
        Buffer gradients = comm.newBuffer(DataType.FLOAT32, 1024)) {
      gradients.copyFromAsync(values, stream);
      comm.allReduce(gradients, gradients, ReduceOp.SUM, stream);
      gradients.copyTo(values, stream); // waits for the result
    }
    assertEquals(7, values[1023]);
  }

  @Test
  void communicatorList() {
    try (Backend backend = Backend.reference(2)) {
      Stream[] streams = {backend.newStream(0), backend.newStream(1)};
      Buffer[] buffers = {
        backend.newBuffer(0, DataType.INT32, 1), backend.newBuffer(1, DataType.INT32, 1)
      };
      buffers[0].copyFromAsync(new int[] {1}, streams[0]);
      buffers[1].copyFromAsync(new int[] {2}, streams[1]);
      try (CommunicatorList comms = backend.newCommunicators(0, 1)) {
        Group.run(
            () -> {
              for (Communicator comm : comms) {
                Buffer buffer = buffers[comm.rank()];
                comm.allReduce(buffer, buffer, ReduceOp.SUM, streams[comm.rank()]);
              }
            });
      }
      int[] sum = new int[1];
      buffers[0].copyTo(sum, streams[0]);
      assertEquals(3, sum[0]);
    }
  }

  @Test
  void buffer() {
    float[] values = {1, 2, 3, 4};
    try (Buffer buffer = comm.newBuffer(DataType.FLOAT32, 4)) {
      buffer.copyFromAsync(values, stream);
      comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
      buffer.copyTo(values, stream); // waits for the result
    }
    assertArrayEquals(new float[] {1, 2, 3, 4}, values);
  }

  @Test
  void stream() {
    Buffer send = newBuffer(5);
    Buffer recv = newBuffer(0);
    stream.synchronize();
    try (Stream stream = comm.newStream()) {
      comm.allReduce(send, recv, ReduceOp.SUM, stream);
      stream.synchronize(); // waits until the work is done
    }
    assertHas(5, recv);
  }

  @Test
  void event() {
    float[] values = {7};
    Stream copyStream = comm.newStream();
    stream.synchronize();
    try (Event copied = comm.newEvent()) {
      gradients.copyFromAsync(values, copyStream);
      copyStream.record(copied);
      stream.waitFor(copied);
      comm.allReduce(gradients, gradients, ReduceOp.SUM, stream);
    }
    assertHas(7, gradients);
  }

  @Test
  void graph() {
    int steps = 3;
    try (Graph step =
        Graph.capture(stream, () -> comm.allReduce(gradients, gradients, ReduceOp.SUM, stream))) {
      for (int i = 0; i < steps; i++) {
        step.launch(stream);
      }
      stream.synchronize();
    }
    assertHas(5, gradients);
  }

  @Test
  void group() {
    Buffer outgoing = newBuffer(5);
    Buffer incoming = newBuffer(0);
    int next = 0;
    int previous = 0;
    Group.run(
        () -> {
          comm.send(outgoing, next, stream);
          comm.recv(incoming, previous, stream);
        });
    assertHas(5, incoming);
  }

  @Test
  void preMulSum() {
    int ownSamples = 3;
    int allSamples = 4;
    double share = (double) ownSamples / allSamples;
    try (ReduceOp.PreMulSum weighted = comm.newPreMulSum(DataType.FLOAT32, share)) {
      comm.allReduce(gradients, gradients, weighted, stream);
    }
    assertHas(3.75f, gradients);
  }

  @Test
  void launchEnvironment() {
    try (Backend backend = Backend.auto()) {
      LaunchEnvironment.current().runRanks(backend, comm -> train(comm));
    }
    assertTrue(trained.get() > 0);
  }

  @Test
  void rendezvous() {
    try (Backend backend = Backend.auto();
        Rendezvous rendezvous = LaunchEnvironment.current().rendezvous(Duration.ofMinutes(2));
        Communicator communicator =
            rendezvous.newCommunicator(backend, CommunicatorConfig.defaults())) {
      train(communicator);
    }
    assertEquals(1, trained.get());
  }

  /** A framework's task. */
  private interface Context {
    String[] allGather(String text);
  }

  @Test
  void allGatherRendezvous() {
    int size = 1;
    Context context = text -> new String[] {text};
    Rendezvous rendezvous =
        Rendezvous.allGather(RankInfo.of(rank, size), text -> List.of(context.allGather(text)));
    assertEquals(1, rendezvous.newCommunicator(backend).size());
  }

  private List<Parameter> parameters() {
    return List.of(
        Parameter.of("layer.weight", weight, weightGradient), Parameter.of("layer.bias", bias));
  }

  private void backward(Batch batch, Consumer<Parameter> ready) {
    weightGradient.copyFromAsync(new float[] {batch.gradient}, stream);
    parameters().reversed().forEach(ready);
  }

  private void optimiserStep(Stream stream) {
    optimiserStep(weight, weightGradient, stream);
  }

  private static void optimiserStep(Buffer values, Buffer gradients, Stream stream) {
    values.copyFromAsync(gradients, stream);
  }

  @Test
  void gradientReducer() {
    List<Parameter> parameters =
        List.of(
            Parameter.of("layer.weight", weight, weightGradient), // copied into a bucket and back
            Parameter.of("layer.bias", bias)); // stored in a bucket: reducer.gradient(...)
    try (GradientReducer reducer =
        GradientReducer.open(comm, parameters, ReducerConfig.defaults(), stream)) {
      for (Batch batch : batches) {
        backward(
            batch, parameter -> reducer.markReady(parameter, stream)); // each as it is computed
        reducer.finish(stream); // the stream waits, the host does not
        optimiserStep(stream);
      }
      stream.synchronize();
    }
    assertHas(2, weight);
  }

  @Test
  void shardedReducer() {
    List<Parameter> parameters = parameters();
    try (ShardedReducer reducer =
        ShardedReducer.open(comm, parameters, ReducerConfig.defaults(), stream)) {
      for (Batch batch : batches) {
        backward(
            batch, parameter -> reducer.markReady(parameter, stream)); // each as it is computed
        reducer.finish(stream);
        for (Shard shard : reducer.shards()) {
          optimiserStep(shard.values(), shard.gradients(), stream); // 1 / size of the work
        }
        reducer.gatherParameters(stream); // every rank has all parameters again
      }
      stream.synchronize();
    }
    assertHas(2, weight);
  }
}
