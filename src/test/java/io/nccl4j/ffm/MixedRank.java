package io.nccl4j.ffm;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.rendezvous.FileRendezvous;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import io.nccl4j.rendezvous.Secret;
import io.nccl4j.rendezvous.TcpRendezvous;
import java.nio.file.Path;
import java.time.Duration;

/**
 * One rank in a process of its own, for {@link MixedBackendsTest}: {@code MixedRank PLACE RANK SIZE
 * BACKEND SECONDS}; prints why it has no communicator.
 */
public final class MixedRank {
  private MixedRank() {}

  /** Joins the others. */
  public static void main(String[] arguments) {
    Duration timeout = Duration.ofSeconds(Long.parseLong(arguments[4]));
    RankInfo rankInfo =
        RankInfo.of(Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]))
            .withTimeout(timeout);
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(timeout).withDevice(0);
    try (Backend backend = arguments[3].equals("nccl") ? Backend.nccl() : Backend.reference(1);
        Rendezvous rendezvous = open(arguments[0], rankInfo);
        Communicator comm = rendezvous.newCommunicator(backend, config)) {
      System.out.println("connected " + comm);
    } catch (RuntimeException e) {
      System.out.println(e);
    }
    // Threads that are still connecting must not keep the process.
    Runtime.getRuntime().halt(0);
  }

  private static Rendezvous open(String place, RankInfo member) {
    String where = place.substring(place.indexOf(':') + 1);
    return place.startsWith("tcp:")
        ? TcpRendezvous.at(
            "127.0.0.1", Integer.parseInt(where), Secret.of("correct horse battery"), member)
        : FileRendezvous.in(Path.of(where), member);
  }
}
