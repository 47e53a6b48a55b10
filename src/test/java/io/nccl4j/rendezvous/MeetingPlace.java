package io.nccl4j.rendezvous;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/** Where the ranks of a test meet: in one of the stores. */
final class MeetingPlace implements AutoCloseable {
  static final String HOST = "127.0.0.1";
  static final Secret SECRET = Secret.of("correct horse battery staple");
  static final Duration LONG = Duration.ofSeconds(60);

  enum Kind {
    TCP,
    FILES,
    TORCH
  }

  private final Kind kind;
  private final int port;
  private final Path directory;
  private final StoreStandIn store;
  private final List<Rendezvous> opened = new ArrayList<>();

  MeetingPlace(Kind kind) throws IOException {
    this.kind = kind;
    this.store = kind == Kind.TORCH ? new StoreStandIn() : null;
    this.port = kind == Kind.TORCH ? store.port() : freePort();
    this.directory = kind == Kind.FILES ? Files.createTempDirectory("nccl4j-ranks") : null;
  }

  static int freePort() throws IOException {
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.ofLiteral(HOST))) {
      return free.getLocalPort();
    }
  }

  InetSocketAddress address() {
    return new InetSocketAddress(InetAddress.ofLiteral(HOST), port);
  }

  RankRendezvous rank(int rank, int size) {
    return rank(SECRET, RankInfo.of(rank, size).withTimeout(LONG));
  }

  RankRendezvous rank(int rank, int size, Duration timeout) {
    return rank(SECRET, RankInfo.of(rank, size).withTimeout(timeout));
  }

  /** Returns the rendezvous of one rank; files need no secret. */
  synchronized RankRendezvous rank(Secret secret, RankInfo rankInfo) {
    RankRendezvous rendezvous =
        switch (kind) {
          case TCP -> RankRendezvous.tcp(HOST, port, secret.shared(), rankInfo);
          case FILES -> RankRendezvous.files(directory, rankInfo);
          case TORCH -> RankRendezvous.torchStore(HOST, port, Optional.of(secret), rankInfo);
        };
    opened.add(rendezvous);
    return rendezvous;
  }

  /** Returns the names of values that are left, except empty ones. */
  List<String> leftovers() throws IOException {
    if (kind == Kind.TORCH) {
      return store.values().entrySet().stream()
          .filter(value -> value.getValue().length > 0)
          .map(value -> value.getKey())
          .toList();
    }
    if (kind == Kind.TCP) {
      return List.of();
    }
    try (Stream<Path> files = Files.list(directory)) {
      return files.map(Path::toString).toList();
    }
  }

  @Override
  public synchronized void close() throws IOException {
    for (Rendezvous each : opened.reversed()) {
      each.close();
    }
    if (store != null) {
      store.close();
    }
    if (directory != null) {
      for (String file : leftovers()) {
        Files.delete(Path.of(file));
      }
      Files.delete(directory);
    }
  }
}
