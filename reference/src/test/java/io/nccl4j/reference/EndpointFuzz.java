package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.RawConnection;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.reference.bootstrap.Handshake;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.random.RandomGenerator;

/**
 * Fuzzes the listening socket of a process over unauthenticated connections: with recorded messages
 * of a valid rank, changed or replayed, with another secret, and with noise. Of the answers only
 * the size is checked, so that the protocol may change.
 */
final class EndpointFuzz implements FuzzTarget {
  private static final Duration PATIENCE = Duration.ofMillis(20);
  private static final int MAX_ANSWERED = 1 << 16;
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));

  private final LoggedErrors errors = new LoggedErrors();
  private final Backend backend =
      ReferenceBackend.openAsProcesses(2, 2, ReferenceOptions.defaults());
  private final UniqueId id = backend.newUniqueId();
  private final InetSocketAddress address = ReferenceId.of(id).maker().address();
  private List<Sample> recorded;

  @Override
  public List<Sample> samples() throws Exception {
    if (recorded == null) {
      recorded = new ArrayList<>();
      // Not with the id that keeps the socket open: the rank gives up, which invalidates the id.
      recorded.add(RecordedJoin.of(backend, backend.newUniqueId()).sent());
      // With the secret of another process.
      Backend other = ReferenceBackend.openAsProcesses(2, 2, ReferenceOptions.defaults());
      recorded.add(RecordedJoin.of(other, other.newUniqueId()).sent());
      for (Message.Kind kind : Message.Kind.values()) {
        recorded.add(claim(kind));
      }
      recorded.add(Sample.text("GET / HTTP/1.1\r\nHost: rank0\r\n\r\n"));
    }
    return recorded;
  }

  /** Returns a claim that answers another greeting, so that its proof is invalid here. */
  private Sample claim(Message.Kind kind) throws IOException {
    ReferenceId referenceId = ReferenceId.of(id);
    Handshake.Answer answer =
        new Handshake.Opening(
                kind, referenceId.secret(), referenceId.maker().process(), 1, out -> {})
            .answer(Handshake.greeting());
    // Header, version, name of the secret, process, nonce, communicator, proof.
    return Sample.of(answer.message().array(), 4, 4, 4, 4, 8, 8, 8, 8, 32, 8);
  }

  @Override
  public void read(byte[] input) throws Exception {
    RandomGenerator random = Fuzzer.random(input);
    try (RawConnection connection = new RawConnection(address)) {
      connection.send(input, random);
      if (random.nextInt(16) != 0) {
        connection.end();
      }
      byte[] answer = connection.answer(PATIENCE);
      if (answer.length > MAX_ANSWERED) {
        throw new AssertionError("the answer has " + answer.length + " bytes");
      }
    }
    errors.check();
  }

  /** Checks that ranks can still connect at this process. */
  @Override
  public void check() throws Exception {
    connectTwo(backend);
    errors.check();
  }

  /** Connects two valid ranks, and aborts them. */
  static void connectTwo(Backend backend) throws Exception {
    UniqueId validId = backend.newUniqueId();
    List<FutureTask<Communicator>> ranks = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      int self = rank;
      FutureTask<Communicator> task =
          new FutureTask<>(() -> backend.newCommunicator(validId, 2, self, CONFIG));
      ranks.add(task);
      Thread.ofPlatform().daemon().name("valid-rank-" + rank).start(task);
    }
    for (FutureTask<Communicator> rank : ranks) {
      rank.get(30, TimeUnit.SECONDS);
    }
    for (FutureTask<Communicator> rank : ranks) {
      rank.get().abort();
    }
  }

  /** A connection is closed; nothing is thrown here. */
  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of();
  }

  /** More than the 4 KiB that a connection may make the process allocate: all threads count. */
  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 18) + 16L * inputBytes;
  }

  @Override
  public boolean usesOtherThreads() {
    return true;
  }

  @Override
  public void close() {
    errors.close();
  }
}
