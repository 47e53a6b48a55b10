package io.nccl4j.internal.rendezvous.tcp;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.HostLookup;
import io.nccl4j.internal.rendezvous.JobRank;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import org.apache.logging.log4j.Logger;

/** The side of the other ranks over TCP: asks rank 0 until it answers or the deadline passes. */
public final class IdClient implements Closeable {
  private static final Logger LOG = Loggers.of(IdClient.class);

  private static final int ANSWER_LIMIT = 1024;
  private static final Duration LONGEST_ATTEMPT = Duration.ofSeconds(10);

  private final String host;
  private final int port;
  private final JobRank jobRank;
  private final SharedSecret secret;
  private final Runnable checkStillOpen;
  private int attempts;
  private volatile SocketChannel current;

  public IdClient(
      String host, int port, JobRank member, SharedSecret secret, Runnable checkStillOpen) {
    this.host = host;
    this.port = port;
    this.jobRank = member;
    this.secret = secret;
    this.checkStillOpen = checkStillOpen;
  }

  /** Returns the id of a round. */
  public UniqueId receive(int round, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    Handshake.Claim claim =
        new Handshake.Claim(
            jobRank.rank(),
            jobRank.size(),
            round,
            backend,
            Token.ofText(jobRank.jobId()),
            Token.random());
    Backoff backoff = Backoff.betweenAttempts(deadline);
    String lastly = "";
    while (true) {
      String problem;
      try {
        return ask(claim, deadline);
      } catch (ClosedByInterruptException e) {
        throw Interrupts.during("on a connection", e);
      } catch (RejectedException e) {
        problem = described(e);
        if (!e.refusal().worthRetrying()) {
          throw new ExchangeFailedException(problem, e);
        }
      } catch (IOException e) {
        problem = e.toString();
      }
      LOG.debug("rank {} asks again: {}", jobRank.rank(), problem);
      checkStillOpen.run();
      // What an attempt says that the deadline cut short tells less than the one before.
      lastly = deadline.passed() && !lastly.isEmpty() ? lastly : problem;
      if (deadline.passed()) {
        throw new NcclTimeoutException(
            "TcpRendezvous.exchange",
            deadline.timeout(),
            "rank 0 has not published round " + round + " at " + address() + "; lastly: " + lastly);
      }
      backoff.pause();
    }
  }

  private String address() {
    return host + ":" + port;
  }

  private UniqueId ask(Handshake.Claim claim, Deadline deadline)
      throws IOException, InterruptedException, ExchangeFailedException {
    Deadline attempt = deadline.orAfter(LONGEST_ATTEMPT);
    // Looked up each time, for a name may come to be while we wait.
    InetAddress[] addresses = HostLookup.addresses(host, attempt);
    InetAddress address = addresses[attempts++ % addresses.length];
    try (SocketChannel channel = SocketChannel.open()) {
      current = channel;
      checkStillOpen.run();
      channel.socket().connect(new InetSocketAddress(address, port), attempt.remainingMillis());
      try (FramedConnection frames = new FramedConnection(channel, attempt)) {
        return converse(frames, claim);
      }
    }
  }

  /** Asks once over a connection; for tests too. */
  public UniqueId converse(FramedConnection frames, Handshake.Claim claim)
      throws IOException, ExchangeFailedException {
    Handshake handshake = greet(frames, claim);
    frames.write(handshake.claimMessage());
    byte[] answer = frames.read(ANSWER_LIMIT);
    if (answer.length == 2 && answer[0] == IdServer.PLAIN) {
      throw refused(answer[1], "");
    }
    if (answer.length < 2 || answer[0] != IdServer.SEALED) {
      throw new IOException("what answers there sends no answer of nccl4j");
    }
    byte[] sealed = Arrays.copyOfRange(answer, 1, answer.length);
    byte[] opened = open(handshake, sealed);
    if (opened.length == 0) {
      throw new ExchangeFailedException("rank 0 at " + address() + " sent an empty answer");
    }
    if (opened[0] != IdServer.GRANTED) {
      String detail = new String(opened, 1, opened.length - 1, StandardCharsets.UTF_8);
      throw refused(opened[0], detail);
    }
    UniqueId id = id(Arrays.copyOfRange(opened, 1, opened.length));
    frames.write(handshake.receipt(sealed));
    return id;
  }

  private UniqueId id(byte[] bytes) throws ExchangeFailedException {
    try {
      return UniqueId.of(bytes);
    } catch (IllegalArgumentException e) {
      throw new ExchangeFailedException("rank 0 at " + address() + " sent no unique id", e);
    }
  }

  /** Another service on the port may soon make room for rank 0, so what it says is no refusal. */
  private Handshake greet(FramedConnection frames, Handshake.Claim claim) throws IOException {
    try {
      return Handshake.ofClient(secret, frames.read(Handshake.GREETING_BYTES), claim);
    } catch (EOFException e) {
      throw new IOException("what answers there closed the connection at once", e);
    } catch (RejectedException e) {
      throw e.refusal() == RejectReason.WRONG_VERSION
          ? e
          : new IOException("what answers there is not nccl4j: " + e.getMessage(), e);
    }
  }

  private static byte[] open(Handshake handshake, byte[] sealed) throws ExchangeFailedException {
    try {
      return handshake.open(sealed);
    } catch (RejectedException e) {
      throw new ExchangeFailedException("what answers there does not know the secret", e);
    }
  }

  private static RejectedException refused(int code, String detail) throws IOException {
    RejectReason refusal =
        RejectReason.ofCode(code)
            .orElseThrow(() -> new IOException("refused with the unknown code " + code));
    return new RejectedException(refusal, detail);
  }

  private String described(RejectedException refused) {
    if (refused.refusal() == RejectReason.ROUND_FAILED) {
      return "rank 0 at " + address() + " has ended the exchange: " + refused.detail();
    }
    String detail = refused.detail().isEmpty() ? "" : " (" + refused.detail() + ")";
    String who = "rank 0 at " + address() + " refused rank " + jobRank.rank() + ", which ";
    return who + refused.refusal().text() + detail;
  }

  /** Ends the attempt under way, if there is one. */
  @Override
  public void close() throws IOException {
    SocketChannel channel = current;
    if (channel != null) {
      channel.close();
    }
  }
}
