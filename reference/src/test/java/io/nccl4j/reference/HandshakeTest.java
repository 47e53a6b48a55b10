package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.AeadCipher;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapFailure;
import io.nccl4j.internal.reference.bootstrap.Handshake;
import io.nccl4j.internal.reference.bootstrap.InitBootstrap;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import io.nccl4j.internal.reference.bootstrap.Secret;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The handshake, against an attacker between two processes. */
class HandshakeTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));
  private static final CommunicatorConfig SOON =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(2));

  private final List<ProcessEndpoint> endpoints =
      List.of(new ProcessEndpoint(), new ProcessEndpoint());
  private final Backend backend = ReferenceBackend.open(2, ReferenceOptions.defaults(), endpoints);

  @Test
  void joinDoesNotShowTheSecret() throws Exception {
    UniqueId made = backend.newUniqueId();
    try (Relay relay = new Relay(made)) {
      UniqueId id = relay.redirect(made);
      relay.relayOne();
      FutureTask<Integer> first = connect(id, 0, CONFIG);
      FutureTask<Integer> second = connect(id, 1, CONFIG);
      assertEquals(2, first.get(30, TimeUnit.SECONDS));
      assertEquals(2, second.get(30, TimeUnit.SECONDS));
      String recorded = HexFormat.of().formatHex(relay.recorded());
      assertFalse(recorded.isEmpty());
      for (String half : halves(ReferenceId.of(id).secret())) {
        assertFalse(recorded.contains(half), "the secret was sent in clear");
      }
      assertFalse(recorded.contains(id.toHex()), "the id was sent in clear");
    }
  }

  private static List<String> halves(Secret secret) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    secret.write(new DataOutputStream(bytes));
    byte[] whole = bytes.toByteArray();
    return List.of(
        HexFormat.of().formatHex(Arrays.copyOf(whole, 8)),
        HexFormat.of().formatHex(Arrays.copyOfRange(whole, 8, 16)));
  }

  @ParameterizedTest
  @EnumSource(
      value = Message.Kind.class,
      names = {"JOIN", "CONTROL", "LINK"})
  void claimDoesNotShowTheSecret(Message.Kind kind) throws Exception {
    Secret secret = Secret.random();
    Handshake.Answer claim =
        new Handshake.Opening(kind, secret, UUID.randomUUID(), 1, out -> {})
            .answer(Handshake.greeting());
    String sent = HexFormat.of().formatHex(claim.message().array());
    for (String half : halves(secret)) {
      assertFalse(sent.contains(half));
    }
  }

  @Test
  void joinRelayedOverAnotherConnectionIsRefused() throws Exception {
    UniqueId made = backend.newUniqueId();
    try (Relay relay = new Relay(made)) {
      UniqueId id = relay.redirect(made);
      try (Socket relayed = relay.crossOver()) {
        FutureTask<Integer> first = connect(id, 0, SOON);
        FutureTask<Integer> second = connect(id, 1, SOON);
        NcclTimeoutException alone = failure(NcclTimeoutException.class, first);
        assertTrue(alone.getMessage().contains("rank 1 of 2 did not join"), alone::toString);
        failure(NcclException.class, second);
        relayed.setSoTimeout(10_000);
        assertTrue(relayed.getInputStream().readAllBytes().length < 100, "nothing was answered");
      }
    }
  }

  @Test
  void claimWithAChangedBitIsRefused() throws Exception {
    UniqueId id = backend.newUniqueId();
    int length = Claimant.answer(id, Handshake.greeting()).message().limit();
    for (int position = Message.HEADER_BYTES; position < length; position++) {
      try (Claimant claimant = new Claimant(id)) {
        byte[] claim = claimant.claim();
        claim[position] ^= (byte) (1 << (position % 8));
        claimant.send(claim);
        assertTrue(claimant.awaitEnd(), "changed byte " + position);
      }
    }
  }

  @Test
  void claimIsInvalidOnAnotherConnection() throws Exception {
    UniqueId id = backend.newUniqueId();
    try (Claimant first = new Claimant(id);
        Claimant second = new Claimant(id)) {
      byte[] claim = first.claim();
      second.claim();
      second.send(claim);
      assertTrue(second.awaitEnd());
      first.send(claim);
      first.send(first.sealed(join(id)));
      assertEquals(Message.Kind.BOOTSTRAP_STATE, first.answer());
    }
  }

  @Test
  void consecutiveSealedMessagesAreAccepted() throws Exception {
    UniqueId id = backend.newUniqueId();
    try (Claimant claimant = new Claimant(id)) {
      claimant.send(claimant.claim());
      claimant.send(claimant.sealed(giveUp()));
      claimant.send(claimant.sealed(join(id)));
      assertEquals(Message.Kind.BOOTSTRAP_STATE, claimant.answer());
    }
  }

  @Test
  void repeatedSealedMessageIsRefused() throws Exception {
    UniqueId id = backend.newUniqueId();
    try (Claimant claimant = new Claimant(id)) {
      claimant.send(claimant.claim());
      byte[] sealed = claimant.sealed(giveUp());
      claimant.send(sealed);
      claimant.send(sealed);
      assertTrue(claimant.awaitEnd());
    }
  }

  @Test
  void changedSealedMessageIsRefused() throws Exception {
    UniqueId id = backend.newUniqueId();
    int length = giveUp().length + AeadCipher.TAG_BYTES;
    for (int position = 0; position < length; position++) {
      if (position >= 8 && position < 11) {
        // The upper bytes of the size: too large, or the rest is waited for.
        continue;
      }
      try (Claimant claimant = new Claimant(id)) {
        claimant.send(claimant.claim());
        byte[] sealed = claimant.sealed(giveUp());
        sealed[position] ^= (byte) (position == 11 ? 1 : 1 << (position % 8));
        claimant.send(sealed);
        // One more byte, in case the size has grown.
        claimant.send(new byte[1]);
        assertTrue(claimant.awaitEnd(), "changed byte " + position);
      }
    }
  }

  @Test
  void unsealedMessageIsRefused() throws Exception {
    UniqueId id = backend.newUniqueId();
    try (Claimant claimant = new Claimant(id)) {
      claimant.send(claimant.claim());
      claimant.send(giveUp());
      assertTrue(claimant.awaitEnd());
    }
  }

  /** Rank 1 has joined and then neither connects nor asks for the state. */
  @Test
  void silentProcessDidNotConnect() throws Exception {
    UniqueId id = backend.newUniqueId();
    try (Claimant claimant = new Claimant(id)) {
      claimant.send(claimant.claim());
      claimant.send(claimant.sealed(join(id, 1, new ProcessEndpoint().address())));
      NcclTimeoutException late = failure(NcclTimeoutException.class, connect(id, 0, SOON));
      assertEquals(Set.of(1), late.missingRanks());
      assertTrue(late.getMessage().contains(": rank 1 did not connect ("), late::toString);
    }
  }

  private static byte[] giveUp() {
    return Message.of(Message.Kind.GIVE_UP, BootstrapFailure.of("a test")::write).array();
  }

  /** Returns the request of rank 0 of 2, which is answered. */
  private static byte[] join(UniqueId id) {
    return join(id, 0, ReferenceId.of(id).maker());
  }

  private static byte[] join(UniqueId id, int rank, ProcessAddress process) {
    return Message.of(
            Message.Kind.JOIN,
            out -> {
              out.write(id.toBytes());
              out.writeUTF(InitBootstrap.CONNECT);
              out.writeInt(2);
              out.writeUTF(ReferenceOptions.defaults().toString());
              new Bootstrap.MembershipRequest(rank, 0, rank, process).write(out);
            })
        .array();
  }

  /** A process that joins by an id, byte by byte. */
  private static final class Claimant implements AutoCloseable {
    private final UniqueId id;
    private final Socket socket;
    private AeadCipher sealer;

    Claimant(UniqueId id) throws IOException {
      this.id = id;
      this.socket = new Socket();
      socket.connect(ReferenceId.of(id).maker().address(), 10_000);
    }

    /** Returns the claim that answers the greeting. */
    byte[] claim() throws IOException {
      socket.setSoTimeout(20_000);
      Handshake.Answer answer =
          answer(id, socket.getInputStream().readNBytes(Handshake.GREETING_BYTES));
      sealer = answer.keys().toAcceptor();
      return answer.message().array();
    }

    private static Handshake.Answer answer(UniqueId id, byte[] greeting) throws IOException {
      ReferenceId referenceId = ReferenceId.of(id);
      return new Handshake.Opening(
              Message.Kind.JOIN, referenceId.secret(), referenceId.maker().process(), 0, out -> {})
          .answer(greeting);
    }

    /** Returns the next message of the connection. */
    byte[] sealed(byte[] message) {
      return SealedMessages.seal(message, sealer, false);
    }

    /** Returns the kind of the message that the other side answers with. */
    Message.Kind answer() throws IOException {
      byte[] header = socket.getInputStream().readNBytes(Message.HEADER_BYTES);
      return Message.begin(ByteBuffer.wrap(header), Message.MAX_BYTES).kind();
    }

    void send(byte[] bytes) throws IOException {
      try {
        socket.getOutputStream().write(bytes);
      } catch (SocketException e) {
        // The other side has ended the connection; reading shows it.
      }
    }

    /** Returns whether the other side ends the connection in time, without an answer. */
    boolean awaitEnd() throws IOException {
      try {
        assertEquals(-1, socket.getInputStream().read());
        return true;
      } catch (SocketTimeoutException e) {
        return false;
      } catch (SocketException e) {
        // Reset, since the sent bytes were not read.
        return true;
      }
    }

    @Override
    public void close() throws IOException {
      socket.close();
    }
  }

  private FutureTask<Integer> connect(UniqueId id, int rank, CommunicatorConfig config) {
    FutureTask<Integer> task =
        new FutureTask<>(
            () -> {
              try (Communicator comm = backend.newCommunicator(id, 2, rank, config)) {
                return comm.size();
              }
            });
    Thread.ofPlatform().daemon().name("rank-" + rank).start(task);
    return task;
  }

  private static <E extends Throwable> E failure(Class<E> type, FutureTask<?> task)
      throws Exception {
    try {
      throw new AssertionError("expected a failure, but got " + task.get(30, TimeUnit.SECONDS));
    } catch (ExecutionException e) {
      return type.cast(e.getCause());
    }
  }
}
