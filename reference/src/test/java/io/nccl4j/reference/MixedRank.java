package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import io.nccl4j.rendezvous.Secret;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;

/**
 * One rank in its own process, for {@link MixedBackendsTest}: {@code MixedRank TARGET RANK SIZE
 * BACKEND SECONDS}. Prints "ready", waits for its input to end, and then prints the communicator or
 * the exception. The target is {@code tcp:PORT} or {@code file:DIRECTORY}.
 */
public final class MixedRank {
  private MixedRank() {}

  /** Joins the rendezvous, prints the result and halts. */
  public static void main(String[] arguments) throws IOException {
    Duration timeout = Duration.ofSeconds(Long.parseLong(arguments[4]));
    RankInfo rankInfo =
        RankInfo.of(Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]))
            .withTimeout(timeout);
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(timeout).withDevice(0);
    try (Backend backend = arguments[3].equals("nccl") ? Backend.nccl() : Backend.reference(1);
        Rendezvous rendezvous = open(arguments[0], rankInfo)) {
      System.out.println("ready");
      System.in.readAllBytes();
      try (Communicator comm = rendezvous.newCommunicator(backend, config)) {
        System.out.println("connected " + comm);
      }
    } catch (RuntimeException e) {
      System.out.println(e);
    }
    // Threads that are still connecting must not keep the process alive.
    Runtime.getRuntime().halt(0);
  }

  private static Rendezvous open(String target, RankInfo rankInfo) {
    String address = target.substring(target.indexOf(':') + 1);
    return target.startsWith("tcp:")
        ? Rendezvous.tcp(
            "127.0.0.1", Integer.parseInt(address), Secret.of("correct horse battery"), rankInfo)
        : Rendezvous.files(Path.of(address), rankInfo);
  }
}
