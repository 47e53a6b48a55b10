package io.nccl4j.rendezvous;

import java.nio.file.Path;
import java.time.Duration;

/** One rank in a separate process: {@code FileRank DIRECTORY RANK SIZE MILLIS}; prints the id. */
final class FileRank {
  private FileRank() {}

  public static void main(String[] arguments) {
    RankInfo rankInfo =
        RankInfo.of(Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]))
            .withTimeout(Duration.ofMillis(Long.parseLong(arguments[3])));
    try (Rendezvous rendezvous = Rendezvous.files(Path.of(arguments[0]), rankInfo)) {
      System.out.println(rendezvous.exchange(RankThreads::newId).toHex());
    }
  }
}
