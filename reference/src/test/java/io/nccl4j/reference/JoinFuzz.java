package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.RawConnection;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.reference.bootstrap.BootstrapFailure;
import io.nccl4j.internal.reference.bootstrap.Handshake;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.random.RandomGenerator;

/**
 * Fuzzes a rank that joins, from an impostor that listens in place of the process that created the
 * id, with the secret or without.
 */
final class JoinFuzz implements FuzzTarget {
  private static final CommunicatorConfig SOON =
      CommunicatorConfig.defaults().withTimeout(Duration.ofMillis(200));

  private final LoggedErrors errors = new LoggedErrors();
  private final List<ProcessEndpoint> endpoints =
      List.of(new ProcessEndpoint(), new ProcessEndpoint());
  private final Backend backend = ReferenceBackend.open(2, ReferenceOptions.defaults(), endpoints);
  private final UniqueId id = backend.newUniqueId();
  private final ExecutorService impostor = Executors.newSingleThreadExecutor();
  private final ServerSocket listener;
  private final UniqueId redirected;

  JoinFuzz() throws IOException {
    listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
    redirected = RecordedJoin.redirected(id, (InetSocketAddress) listener.getLocalSocketAddress());
  }

  @Override
  public List<Sample> samples() throws Exception {
    return List.of(
        RecordedJoin.of(backend, id).answered(),
        state(null, false),
        state("why", true),
        stateWithoutAssignments(),
        message(
            Message.Kind.REJECTED,
            out -> {
              out.writeInt(1);
              out.writeUTF("refused");
            }));
  }

  private static Sample state(String failure, boolean missing) throws IOException {
    return message(
        Message.Kind.BOOTSTRAP_STATE,
        out -> {
          out.writeInt(2);
          out.writeBoolean(failure != null);
          if (failure != null) {
            BootstrapFailure.of(failure, 0).write(out);
          }
          out.writeBoolean(missing);
          if (missing) {
            out.writeInt(1);
            out.writeByte(1);
          }
          Message.writeBits(out, new BitSet());
          out.writeBoolean(false);
          out.writeBoolean(false);
        });
  }

  /** The state of a bootstrap with no assignments. */
  private static Sample stateWithoutAssignments() throws IOException {
    return message(
        Message.Kind.BOOTSTRAP_STATE,
        out -> {
          out.writeInt(2);
          out.writeBoolean(false);
          Message.writeBits(out, new BitSet());
          Message.writeBits(out, new BitSet());
          out.writeBoolean(false);
          out.writeBoolean(true);
          out.writeInt(0);
          out.writeInt(0);
        });
  }

  private static Sample message(Message.Kind kind, Message.Body body) throws IOException {
    byte[] header = Arrays.copyOf(Message.of(kind, body).array(), Message.HEADER_BYTES);
    return Sample.of(header, 4, 4, 4).followedBy(Sample.of(body::write));
  }

  @Override
  public void read(byte[] input) throws Exception {
    Future<?> answered = impostor.submit(() -> answer(input));
    try (Communicator unexpected = backend.newCommunicator(redirected, 2, 1, SOON)) {
      throw new AssertionError(unexpected + " was created without the other rank");
    } finally {
      answered.get();
      // Otherwise the next rank would join the same bootstrap, without another connection.
      CoordinatorFuzz.awaitLoss(endpoints.get(1));
    }
  }

  private Object answer(byte[] input) throws IOException {
    RandomGenerator random = Fuzzer.random(input);
    try (Socket joiner = listener.accept()) {
      byte[] answer = random.nextInt(4) == 0 ? input : sealed(joiner, input);
      boolean sent = RawConnection.send(joiner, answer, random);
      if (sent && random.nextInt(32) == 0) {
        joiner.setSoTimeout(1000);
        return joiner.getInputStream().readAllBytes();
      }
    } catch (IOException e) {
      // The rank has closed the connection; the caller checks its exception.
    }
    return null;
  }

  /** Greets the rank, and returns the input sealed with the keys of its claim. */
  private byte[] sealed(Socket joiner, byte[] input) throws IOException {
    joiner.setSoTimeout(1000);
    byte[] greeting = Handshake.greeting();
    joiner.getOutputStream().write(greeting);
    Handshake.Claim claim = Handshake.Claim.read(next(joiner));
    SessionKeys keys = claim.prove(ReferenceId.of(id).secret(), greeting);
    // Reads its JOIN, which would otherwise reset the connection.
    next(joiner);
    boolean announced = Fuzzer.random(input).nextInt() % 4 == 0;
    return SealedMessages.seal(input, keys.toConnector(), announced);
  }

  private static Message next(Socket joiner) throws IOException {
    DataInputStream in = new DataInputStream(joiner.getInputStream());
    byte[] header = in.readNBytes(Message.HEADER_BYTES);
    Message message = Message.begin(ByteBuffer.wrap(header), Message.MAX_BYTES);
    in.readFully(message.bytes());
    return message;
  }

  @Override
  public void check() {
    errors.check();
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(NcclException.class);
  }

  @Override
  public Duration limit() {
    return SOON.timeout().orElseThrow().plusSeconds(25);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (20L << 20) + 64L * inputBytes;
  }

  @Override
  public boolean usesOtherThreads() {
    return true;
  }

  @Override
  public void close() throws IOException {
    listener.close();
    impostor.shutdownNow();
    errors.close();
  }
}
