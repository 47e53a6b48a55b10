package io.nccl4j.examples.hello;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Launcher;
import io.nccl4j.rendezvous.Rendezvous;
import io.nccl4j.rendezvous.RendezvousException;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Sums one gradient per rank, on GPUs if there are any, else on the reference backend. */
public final class Hello {
  private static final int COUNT = 1_000;
  private static final Duration TIMEOUT = Duration.ofMinutes(2);

  private Hello() {}

  /** Runs the ranks of this process. Errors that the user can fix are printed without a stack. */
  public static void main(String[] args) throws InterruptedException, ExecutionException {
    try {
      run();
    } catch (IllegalArgumentException e) {
      System.err.println("hello: " + e.getMessage());
      System.exit(2);
    } catch (IOException
        | NcclException
        | CudaException
        | LibraryNotFoundException
        | RendezvousException e) {
      System.err.println("hello: " + e.getMessage());
      System.exit(1);
    }
  }

  /** Runs the rank set by a launcher, else one rank for each device of the best backend. */
  private static void run() throws InterruptedException, ExecutionException, IOException {
    LaunchEnvironment launch = LaunchEnvironment.current();
    try (Backend backend = Backend.auto()) {
      backend
          .fallbackReason()
          .ifPresent(reason -> System.err.println("hello: NCCL is not used: " + reason));
      if (launch.launcher() == Launcher.NONE) {
        oneRankPerDevice(backend);
      } else {
        launchedRank(launch, backend);
      }
    }
    if (System.out.checkError()) {
      throw new IOException("the results cannot be written to stdout");
    }
  }

  private static void launchedRank(LaunchEnvironment launch, Backend backend) {
    try (Rendezvous rendezvous = launch.rendezvous(TIMEOUT);
        Communicator comm = rendezvous.newCommunicator(backend, CommunicatorConfig.defaults())) {
      System.out.println(
          "%s; started by %s, id from %s"
              .formatted(allReduce(backend, comm), launch.launcher(), launch.idSource()));
    }
  }

  private static void oneRankPerDevice(Backend backend)
      throws InterruptedException, ExecutionException {
    UniqueId id = backend.newUniqueId();
    int worldSize = backend.devices().size();
    List<Callable<String>> ranks = new ArrayList<>();
    for (int r = 0; r < worldSize; r++) {
      int rank = r;
      ranks.add(
          () -> {
            try (Communicator comm =
                backend.newCommunicator(id, worldSize, rank, CommunicatorConfig.defaults())) {
              return allReduce(backend, comm);
            }
          });
    }
    try (ExecutorService threads = Executors.newFixedThreadPool(worldSize)) {
      for (Future<String> line : threads.invokeAll(ranks)) {
        System.out.println(result(line));
      }
    }
  }

  /** Returns a rank's result, or throws its exception. */
  private static String result(Future<String> rank)
      throws InterruptedException, ExecutionException {
    try {
      return rank.get();
    } catch (ExecutionException e) {
      if (e.getCause() instanceof RuntimeException thrown) {
        throw thrown;
      }
      throw e;
    }
  }

  private static String allReduce(Backend backend, Communicator comm) {
    MemorySegment host = Arena.ofAuto().allocate(ValueLayout.JAVA_FLOAT, COUNT);
    for (int i = 0; i < COUNT; i++) {
      host.setAtIndex(ValueLayout.JAVA_FLOAT, i, comm.rank() + i);
    }
    try (Stream stream = comm.newStream();
        Buffer grads = comm.newBuffer(DataType.FLOAT32, COUNT)) {
      grads.copyFromAsync(host, stream);
      comm.allReduce(grads, grads, ReduceOp.SUM, stream);
      grads.copyTo(host, stream);
    }
    float rankSum = comm.size() * (comm.size() - 1) / 2f;
    for (int i = 0; i < COUNT; i++) {
      float sum = host.getAtIndex(ValueLayout.JAVA_FLOAT, i);
      if (sum != rankSum + comm.size() * (float) i) {
        throw new AssertionError("rank " + comm.rank() + ": element " + i + " is " + sum);
      }
    }
    return "%s: rank %d of %d has the sum of %d elements, OK"
        .formatted(backend.name(), comm.rank(), comm.size(), COUNT);
  }
}
