package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.RawConnection;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapFailure;
import io.nccl4j.internal.reference.bootstrap.Handshake;
import io.nccl4j.internal.reference.bootstrap.InitBootstrap;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.RankMap;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import io.nccl4j.internal.reference.bootstrap.Secret;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.random.RandomGenerator;

/**
 * Fuzzes the process that created an id, from a process that has the id: it completes the
 * handshake, and then seals invalid messages.
 */
final class CoordinatorFuzz implements FuzzTarget {
  private static final Duration PATIENCE = Duration.ofMillis(20);
  private static final long NOTICE_NANOS = Duration.ofSeconds(20).toNanos();

  private final LoggedErrors errors = new LoggedErrors();
  private final List<ProcessEndpoint> endpoints =
      List.of(new ProcessEndpoint(), new ProcessEndpoint());
  private final Backend backend = ReferenceBackend.open(2, ReferenceOptions.defaults(), endpoints);
  private final ProcessEndpoint endpoint = endpoints.getFirst();
  private final UniqueId id = backend.newUniqueId();
  private final Secret secret = ReferenceId.of(id).secret();

  @Override
  public List<Sample> samples() throws Exception {
    ProcessAddress here = endpoint.address();
    ProcessAddress there =
        new ProcessAddress(UUID.randomUUID(), UUID.randomUUID(), here.address(), 1, "another");
    Sample first = join(2, "", 0, here);
    Sample second = join(2, "", 1, there);
    List<Sample> samples = new ArrayList<>();
    samples.add(first);
    samples.add(first.followedBy(join(2, "", 1, here)));
    samples.add(first.followedBy(second));
    samples.add(first.followedBy(second).followedBy(connected(0)).followedBy(connected(1)));
    samples.add(first.followedBy(join(3, "", 1, there)));
    samples.add(first.followedBy(first));
    samples.add(first.followedBy(giveUp()));
    samples.add(giveUp());
    samples.add(connected(0));
    samples.add(join(RankMap.MAX_RANKS, "", 0, here));
    // The rejections and failures quote these texts.
    String longest = "x".repeat(0xFFFF);
    samples.add(join(2, longest, 0, here).followedBy(join(2, "", 1, here)));
    samples.add(
        join(
            2, "", 0, new ProcessAddress(here.process(), here.host(), here.address(), 1, longest)));
    for (Message.Kind kind : Message.Kind.values()) {
      samples.add(message(kind, out -> {}));
    }
    return samples;
  }

  private Sample join(int size, String options, int rank, ProcessAddress process)
      throws IOException {
    return message(
        Message.Kind.JOIN,
        out -> {
          out.write(id.toBytes());
          out.writeUTF(InitBootstrap.CONNECT);
          out.writeInt(size);
          out.writeUTF(options);
          new Bootstrap.MembershipRequest(rank, 0, rank, process).write(out);
        });
  }

  private static Sample connected(int rank) throws IOException {
    return message(Message.Kind.CONNECTED, out -> out.writeInt(rank));
  }

  private static Sample giveUp() throws IOException {
    return message(Message.Kind.GIVE_UP, BootstrapFailure.of("gave up")::write);
  }

  private static Sample message(Message.Kind kind, Message.Body body) throws IOException {
    byte[] header = Arrays.copyOf(Message.of(kind, body).array(), Message.HEADER_BYTES);
    return Sample.of(header, 4, 4, 4).followedBy(Sample.of(body::write));
  }

  @Override
  public void read(byte[] input) throws Exception {
    if (!endpoint.isValid(secret)) {
      // An earlier input has invalidated it.
      endpoint.retainForId(secret, InitBootstrap.CONNECT);
    }
    RandomGenerator random = Fuzzer.random(input);
    try (RawConnection connection = new RawConnection(endpoint.address().address())) {
      Handshake.Answer answer =
          new Handshake.Opening(Message.Kind.JOIN, secret, endpoint.process(), 0, out -> {})
              .answer(connection.input().readNBytes(Handshake.GREETING_BYTES));
      ByteArrayOutputStream sent = new ByteArrayOutputStream();
      sent.writeBytes(answer.message().array());
      boolean announced = random.nextInt(4) == 0;
      sent.writeBytes(SealedMessages.seal(input, answer.keys().toAcceptor(), announced));
      connection.send(sent.toByteArray(), random);
      if (random.nextInt(16) != 0) {
        connection.end();
      }
      connection.answer(PATIENCE);
    }
    awaitLoss(endpoint);
    errors.check();
  }

  /** Waits until a process has failed the bootstraps of a connection that has ended. */
  static void awaitLoss(ProcessEndpoint endpoint) throws InterruptedException {
    long end = System.nanoTime() + NOTICE_NANOS;
    while (endpoint.openTargets() > 0) {
      if (System.nanoTime() > end) {
        throw new AssertionError("the end of the connection was not noticed");
      }
      Thread.sleep(1);
    }
  }

  /** Checks that ranks can still connect at this process. */
  @Override
  public void check() throws Exception {
    EndpointFuzz.connectTwo(backend);
    errors.check();
  }

  /** A connection is closed, or a rank refused; nothing is thrown here. */
  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of();
  }

  /** A message may announce 16 MiB, which is more than any needs. */
  @Override
  public long maxAllocated(int inputBytes) {
    return (20L << 20) + 64L * inputBytes;
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
