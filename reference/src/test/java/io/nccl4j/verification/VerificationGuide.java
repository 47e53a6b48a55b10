package io.nccl4j.verification;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.time.Duration;

/** The programs of {@code docs/guides/verification.md}, which {@link PredictedOrderTest} runs. */
public final class VerificationGuide {
  private static final int STEPS = 400;

  private VerificationGuide() {}

  /** Verifies, then compares calls. */
  public static void main(String[] arguments) {
    Verification.install(); // before the first backend
    try (Backend backend = Backend.nccl()) {
      backend.runRanks(
          2,
          comm -> {
            try (Verification verification = Verification.sampling(comm, 1_000)) {
              train(comm);
              report(verification.counts());
            }
          });
    }
    try (Backend backend = Backend.nccl()) {
      backend.runRanks(2, VerificationGuide::compare);
    }
  }

  private static void compare(Communicator comm) {
    try (CallCheck _ = CallCheck.of(comm, Duration.ofSeconds(30))) {
      train(comm);
    }
  }

  private static void report(VerificationCounts counts) {
    System.out.println("> " + counts);
  }

  private static void train(Communicator comm) {
    try (Stream stream = comm.newStream();
        Buffer buffer = comm.newBuffer(DataType.INT32, 1)) {
      for (int i = 0; i < STEPS; i++) {
        comm.allReduce(buffer, buffer, ReduceOp.MAX, stream);
      }
      stream.synchronize();
    }
  }
}
