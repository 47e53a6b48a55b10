package io.nccl4j.examples.hello;

import io.nccl4j.*;
import io.nccl4j.rendezvous.*;
import java.util.Arrays;

/** Sums an array over all ranks: with NCCL if there are GPUs, otherwise in pure Java. */
public final class Hello {
  public static void main(String[] args) {
    try (Backend backend = Backend.auto()) {
      LaunchEnvironment launch = LaunchEnvironment.current();
      backend.fallbackReason().ifPresent(why -> System.err.println("hello: no NCCL: " + why));
      launch.runRanks(backend, comm -> sum(comm, launch));
    } catch (Nccl4jException | IllegalArgumentException e) {
      System.err.println("hello: " + e.getMessage());
      System.exit(1);
    }
  }

  private static void sum(Communicator comm, LaunchEnvironment launch) {
    float[] values = new float[1000];
    Arrays.fill(values, comm.rank() + 1);
    try (Stream stream = comm.newStream();
        Buffer buffer = comm.newBuffer(DataType.FLOAT32, values.length)) {
      buffer.copyFromAsync(values, stream);
      comm.allReduce(buffer, buffer, ReduceOp.SUM, stream); // enqueued
      buffer.copyTo(values, stream); // waits for the result
    }
    float expected = comm.size() * (comm.size() + 1) / 2f;
    if (values[0] != expected || values[999] != expected) {
      throw new AssertionError("rank " + comm.rank() + " has " + Arrays.toString(values));
    }
    String how = launch.launcher() + ", id from " + launch.idSource();
    System.out.println(
        "%s: rank %d of %d has the sum of 1000 elements, OK; started by %s"
            .formatted(comm.backend().name(), comm.rank(), comm.size(), how));
  }
}
