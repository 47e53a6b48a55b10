package io.nccl4j.rendezvous;

import io.nccl4j.UniqueId;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.FutureTask;

/**
 * Prints all that a program with a secret may print of nccl4j: the texts of its objects, failures,
 * and the log. Two ranks meet over TCP, first with the secret of the environment, then rank 1 has
 * another one.
 */
final class SecretOutput {
  private SecretOutput() {}

  public static void main(String[] args) throws Exception {
    print(Secret.from(System.getenv()));
    print(new LaunchVariables(System.getenv()));
    print(ProcessRank.in(new LaunchVariables(System.getenv())));
    for (Map<String, String> other :
        List.of(Map.<String, String>of(), Map.of(Secret.VARIABLE, "another secret, also long"))) {
      int port = freePort();
      FutureTask<Void> first = start(0, port, Map.of());
      FutureTask<Void> second = start(1, port, other);
      first.get();
      second.get();
    }
    for (String wrong :
        new String[] {
          "NCCL4J_SECRET=short", "RANK=x", "WORLD_SIZE=0", "MASTER_PORT=0", "PMI_RANK=1"
        }) {
      try {
        Map<String, String> environment = environment(0, freePort());
        environment.put(wrong.split("=", 2)[0], wrong.split("=", 2)[1]);
        LaunchEnvironment.from(environment).rendezvous(Duration.ofSeconds(1)).close();
        throw new AssertionError(wrong + " was accepted");
      } catch (IllegalArgumentException expected) {
        print(expected);
      }
    }
  }

  private static Map<String, String> environment(int rank, int port) {
    Map<String, String> environment = new HashMap<>(System.getenv());
    environment.put("RANK", Integer.toString(rank));
    environment.put("WORLD_SIZE", "2");
    environment.put("MASTER_ADDR", "127.0.0.1");
    environment.put("MASTER_PORT", Integer.toString(port));
    return environment;
  }

  private static FutureTask<Void> start(int rank, int port, Map<String, String> other) {
    Map<String, String> environment = environment(rank, port);
    if (!other.isEmpty()) {
      environment.remove(Secret.FILE_VARIABLE);
      environment.putAll(other);
    }
    FutureTask<Void> task =
        new FutureTask<>(
            () -> {
              LaunchEnvironment launch = LaunchEnvironment.from(environment, Optional::empty);
              print(launch);
              print(launch.idSource());
              try (Rendezvous rendezvous = launch.rendezvous(Duration.ofSeconds(10))) {
                print(rendezvous);
                UniqueId id =
                    rendezvous.exchange(() -> UniqueId.fromHex("5a".repeat(UniqueId.BYTES)));
                print("rank " + rank + " has " + id);
              } catch (RuntimeException failure) {
                print(failure);
              }
              return null;
            });
    Thread.ofPlatform().start(task);
    return task;
  }

  private static int freePort() throws Exception {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }

  private static synchronized void print(Object text) {
    System.out.println(text);
    if (text instanceof Throwable failure) {
      failure.printStackTrace(System.out);
    }
  }
}
