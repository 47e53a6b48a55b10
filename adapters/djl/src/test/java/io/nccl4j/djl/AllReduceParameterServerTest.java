package io.nccl4j.djl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import ai.djl.Device;
import ai.djl.engine.Engine;
import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.NDManager;
import ai.djl.nn.Parameter;
import ai.djl.training.GradientCollector;
import ai.djl.training.ParameterStore;
import ai.djl.training.optimizer.Optimizer;
import ai.djl.training.tracker.Tracker;
import io.nccl4j.Communicator;
import io.nccl4j.adapters.TwoRanks;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class AllReduceParameterServerTest {
  /** One gradient collector at a time may collect in a process. */
  private static final Object COLLECTING = new Object();

  private static AllReduceParameterServer server(Communicator comm) {
    return new AllReduceParameterServer(
        comm, Optimizer.sgd().setLearningRateTracker(Tracker.fixed(1)).build());
  }

  private static NDArray parameter(NDManager manager, float... values) {
    NDArray parameter = manager.create(values);
    parameter.setRequiresGradient(true);
    return parameter;
  }

  private static void setGradients(NDArray parameter, float gradient) {
    synchronized (COLLECTING) {
      try (GradientCollector collector = Engine.getInstance().newGradientCollector()) {
        collector.backward(parameter.mul(gradient).sum());
      }
    }
  }

  private static void update(AllReduceParameterServer server, String id, NDArray parameter) {
    server.update(id, new NDArray[] {parameter});
  }

  @Test
  void ranksMayUpdateInDifferentOrder() {
    TwoRanks.run(
        (comm, stream) -> {
          try (NDManager manager = NDManager.newBaseManager();
              AllReduceParameterServer server = server(comm)) {
            NDArray a = parameter(manager, 10 + comm.rank(), 20);
            NDArray b = parameter(manager, 30, 40 + comm.rank());
            NDArray frozen = manager.create(new float[] {comm.rank() + 5});
            // As DJL does, each process has its own names.
            String[] ids = comm.rank() == 0 ? new String[] {"1", "2"} : new String[] {"2", "1"};
            server.init(ids[0], new NDArray[] {a});
            server.init("frozen", new NDArray[] {frozen});
            server.init(ids[1], new NDArray[] {b});
            for (int step = 0; step < 2; step++) {
              setGradients(a, comm.rank()); // 0.5 on average
              setGradients(b, 2 + comm.rank()); // 2.5
              if (comm.rank() == 0) {
                update(server, ids[0], a);
                update(server, ids[1], b);
              } else {
                update(server, ids[1], b);
                update(server, ids[0], a);
              }
            }
            assertArrayEquals(new float[] {9, 19}, a.toFloatArray());
            assertArrayEquals(new float[] {25, 35}, b.toFloatArray());
            assertArrayEquals(new float[] {5}, frozen.toFloatArray());
          }
        });
  }

  @Test
  void parameterStoreUpdatesAllParameters() {
    TwoRanks.run(
        (comm, stream) -> {
          try (NDManager manager = NDManager.newBaseManager();
              AllReduceParameterServer server = server(comm)) {
            ParameterStore store = new ParameterStore(manager, false);
            store.setParameterServer(server, new Device[] {manager.getDevice()});
            List<NDArray> parameters = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
              Parameter parameter =
                  Parameter.builder().setName("p" + i).setType(Parameter.Type.OTHER).build();
              parameter.setArray(parameter(manager, i));
              parameters.add(store.getValue(parameter, manager.getDevice(), true));
              setGradients(parameters.get(i), i * comm.rank()); // i / 2 on average
            }
            store.updateAllParameters();
            for (int i = 0; i < 8; i++) {
              assertEquals(i - i / 2f, parameters.get(i).getFloat());
            }
          }
        });
  }

  /** Keeps what it was given, and changes nothing. */
  private static final class Recorder extends Optimizer {
    private long address;
    private float[] gradient;

    Recorder() {
      super(Optimizer.sgd().setLearningRateTracker(Tracker.fixed(1)));
    }

    @Override
    public void update(String id, NDArray weight, NDArray gradient) {
      address = address(gradient);
      this.gradient = gradient.toFloatArray();
    }
  }

  private static long address(NDArray array) {
    return MemorySegment.ofBuffer(array.toByteBuffer(true)).address();
  }

  @Test
  void gradientIsAveragedInItsOwnMemory() {
    TwoRanks.run(
        (comm, stream) -> {
          Recorder recorder = new Recorder();
          try (NDManager manager = NDManager.newBaseManager();
              AllReduceParameterServer server = new AllReduceParameterServer(comm, recorder)) {
            NDArray parameter = parameter(manager, 1, 2, 3);
            server.init("p", new NDArray[] {parameter});
            setGradients(parameter, 6 + 2 * comm.rank());
            try (NDArray gradient = parameter.getGradient()) {
              update(server, "p", parameter);
              assertEquals(address(gradient), recorder.address);
            }
            assertArrayEquals(new float[] {7, 7, 7}, recorder.gradient);
          }
        });
  }

  @Test
  void wrongUpdatesAreRejected() {
    TwoRanks.one(
        (comm, stream) -> {
          try (NDManager manager = NDManager.newBaseManager();
              AllReduceParameterServer server = server(comm)) {
            NDArray a = parameter(manager, 1);
            NDArray b = parameter(manager, 2);
            server.init("a", new NDArray[] {a});
            server.init("b", new NDArray[] {b});
            for (NDArray parameter : List.of(a, b)) {
              setGradients(parameter, 1);
            }
            assertEquals(
                "parameter c was not initialized",
                assertThrows(IllegalArgumentException.class, () -> update(server, "c", a))
                    .getMessage());
            assertEquals(
                "parameter a is on 2 devices; a rank trains on one",
                assertThrows(
                        IllegalArgumentException.class,
                        () -> server.update("a", new NDArray[] {a, a}))
                    .getMessage());
            update(server, "a", a);
            assertEquals(
                "parameter a is updated twice before others; update each that has a gradient once a"
                    + " step",
                assertThrows(IllegalStateException.class, () -> update(server, "a", a))
                    .getMessage());
          }
        });
  }
}
