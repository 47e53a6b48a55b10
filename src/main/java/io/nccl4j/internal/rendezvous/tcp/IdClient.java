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

/** The client side over TCP, on all ranks except 0: asks rank 0 for the id until the deadline. */
public final class IdClient implements Closeable {
  private static final Logger LOG = Loggers.of(IdClient.class);

  private static final int ANSWER_LIMIT = 1024;
  private static final Duration ATTEMPT_TIMEOUT = Duration.ofSeconds(10);

  private final String host;
  private final int port;
  private final JobRank jobRank;
  private final SharedSecret secret;
  private final Runnable checkStillOpen;
  private int attempts;
  private volatile SocketChannel current;

  public IdClient(
      String host, int port, JobRank jobRank, SharedSecret secret, Runnable checkStillOpen) {
    this.host = host;
    this.port = port;
    this.jobRank = jobRank;
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
    String lastProblem = "";
    while (true) {
      String problem;
      try {
        return ask(claim, deadline);
      } catch (ClosedByInterruptException e) {
        throw Interrupts.during("on a connection", e);
      } catch (RejectedException e) {
        problem = describe(e);
        if (!e.reason().retryable()) {
          throw new ExchangeFailedException(problem, e);
        }
      } catch (IOException e) {
        problem = e.toString();
      }
      LOG.debug("rank {} retries: {}", jobRank.rank(), problem);
      checkStillOpen.run();
      // The problem of an attempt cut short by the deadline is less useful than the previous one.
      lastProblem = deadline.passed() && !lastProblem.isEmpty() ? lastProblem : problem;
      if (deadline.passed()) {
        throw new NcclTimeoutException(
            "TcpRendezvous.exchange",
            deadline.timeout(),
            "rank 0 has not published round "
                + round
                + " at "
                + address()
                + "; last problem: "
                + lastProblem);
      }
      backoff.pause();
    }
  }

  private String address() {
    return host + ":" + port;
  }

  private UniqueId ask(Handshake.Claim claim, Deadline deadline)
      throws IOException, InterruptedException, ExchangeFailedException {
    Deadline attempt = deadline.orAfter(ATTEMPT_TIMEOUT);
    // Resolved each time, since the name may become resolvable while we wait.
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

  /** Asks once over a connection; also used by tests. */
  public UniqueId converse(FramedConnection frames, Handshake.Claim claim)
      throws IOException, ExchangeFailedException {
    Handshake handshake = greet(frames, claim);
    frames.write(handshake.claimMessage());
    byte[] answer = frames.read(ANSWER_LIMIT);
    if (answer.length == 2 && answer[0] == IdServer.PLAIN) {
      throw rejection(answer[1], "");
    }
    if (answer.length < 2 || answer[0] != IdServer.SEALED) {
      throw new IOException("the server's answer is not nccl4j's protocol");
    }
    byte[] sealed = Arrays.copyOfRange(answer, 1, answer.length);
    byte[] opened = open(handshake, sealed);
    if (opened.length == 0) {
      throw new ExchangeFailedException("rank 0 at " + address() + " sent an empty answer");
    }
    if (opened[0] != IdServer.GRANTED) {
      String detail = new String(opened, 1, opened.length - 1, StandardCharsets.UTF_8);
      throw rejection(opened[0], detail);
    }
    UniqueId id = id(Arrays.copyOfRange(opened, 1, opened.length));
    frames.write(handshake.receipt(sealed));
    return id;
  }

  private UniqueId id(byte[] bytes) throws ExchangeFailedException {
    try {
      return UniqueId.of(bytes);
    } catch (IllegalArgumentException e) {
      throw new ExchangeFailedException("rank 0 at " + address() + " sent an invalid unique id", e);
    }
  }

  /**
   * Reads the greeting. An unknown greeting is retryable: another service on the port may soon be
   * replaced by rank 0.
   */
  private Handshake greet(FramedConnection frames, Handshake.Claim claim) throws IOException {
    try {
      return Handshake.ofClient(secret, frames.read(Handshake.GREETING_BYTES), claim);
    } catch (EOFException e) {
      throw new IOException("the server closed the connection at once", e);
    } catch (RejectedException e) {
      throw e.reason() == RejectReason.WRONG_VERSION
          ? e
          : new IOException("the server is not nccl4j: " + e.getMessage(), e);
    }
  }

  private static byte[] open(Handshake handshake, byte[] sealed) throws ExchangeFailedException {
    try {
      return handshake.open(sealed);
    } catch (RejectedException e) {
      throw new ExchangeFailedException("the server does not know the secret", e);
    }
  }

  private static RejectedException rejection(int code, String detail) throws IOException {
    RejectReason reason =
        RejectReason.ofCode(code)
            .orElseThrow(() -> new IOException("rejected with the unknown code " + code));
    return new RejectedException(reason, detail);
  }

  private String describe(RejectedException rejected) {
    if (rejected.reason() == RejectReason.ROUND_FAILED) {
      return "rank 0 at " + address() + " has ended the exchange: " + rejected.detail();
    }
    String detail = rejected.detail().isEmpty() ? "" : " (" + rejected.detail() + ")";
    String prefix = "rank 0 at " + address() + " rejected rank " + jobRank.rank() + ", which ";
    return prefix + rejected.reason().text() + detail;
  }

  /** Ends the attempt in progress, if any. */
  @Override
  public void close() throws IOException {
    SocketChannel channel = current;
    if (channel != null) {
      channel.close();
    }
  }
}
