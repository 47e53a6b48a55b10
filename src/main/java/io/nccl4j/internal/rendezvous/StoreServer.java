package io.nccl4j.internal.rendezvous;

import io.nccl4j.internal.auth.PendingConnections;
import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.RateLimitedWarning;
import java.io.Closeable;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.logging.log4j.Logger;

/**
 * The store of rank 0, and its server for the other ranks. Listens from construction until close.
 * Each client has its own virtual thread, so no client waits for another. {@link
 * PendingConnections} bounds the number of unauthenticated clients.
 */
public final class StoreServer implements Closeable {
  private static final Logger LOG = Loggers.of(StoreServer.class);

  private static final int BACKLOG = 4096;
  private static final int MAX_REPORTED = 8;
  private static final int MAX_KEY_BYTES = 256;

  /** Bounds the memory that a client with the secret can use. */
  private static final int MAX_VALUES = 1 << 14;

  /** How long a client may take to authenticate; many times what a rank needs. */
  private static final Duration CLAIM_TIMEOUT = Duration.ofSeconds(5);

  /** Long enough for any rank to wait; the end of the exchange closes its connection. */
  private static final Duration SERVED = Duration.ofDays(7);

  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(1);
  private static final Duration ACCEPT_RETRY_DELAY = Duration.ofMillis(50);

  private final JobRank self;
  private final Token run;
  private final SharedSecret secret;
  private final ServerSocketChannel listener;
  private final Thread acceptor;
  private final RateLimitedWarning failures = new RateLimitedWarning();
  private final Values values = new Values();

  // Guarded by this.
  private final PendingConnections<SocketChannel> pending =
      new PendingConnections<>(PendingConnections.limit());
  private final Set<SocketChannel> admitted = new HashSet<>();
  private final List<String> rejections = new ArrayList<>();
  private final Map<Integer, String> impostors = new HashMap<>();
  private long rejected;
  private boolean closed;

  /**
   * Starts listening.
   *
   * @throws ExchangeFailedException if it cannot listen on the address
   */
  public StoreServer(InetSocketAddress address, JobRank self, SharedSecret secret)
      throws ExchangeFailedException {
    this.self = self;
    this.run = Token.ofText(self.jobId());
    this.secret = secret;
    this.listener = listen(address);
    this.acceptor = Thread.ofVirtual().name("nccl4j-rendezvous-accept").start(this::acceptAll);
  }

  private static ServerSocketChannel listen(InetSocketAddress address)
      throws ExchangeFailedException {
    try {
      ServerSocketChannel channel = ServerSocketChannel.open();
      try {
        return channel.bind(address, BACKLOG);
      } catch (IOException e) {
        channel.close();
        throw e;
      }
    } catch (IOException e) {
      throw new ExchangeFailedException(
          "rank 0 cannot listen on " + address + ": " + e.getMessage(), e);
    }
  }

  /** Returns the store, which stays open until this server is closed. */
  public Store store() {
    return values;
  }

  /** The values, in memory. */
  private final class Values implements Store {
    private final Map<String, byte[]> byKey = new HashMap<>();

    @Override
    public synchronized void set(String key, byte[] value) throws IOException {
      if (byKey.size() >= Math.max(MAX_VALUES, 4 * self.size()) && !byKey.containsKey(key)) {
        throw new ProtocolException("set more values than an exchange needs");
      }
      byKey.put(key, value);
    }

    @Override
    public synchronized byte[] get(String key) {
      return byKey.getOrDefault(key, new byte[0]);
    }

    @Override
    public synchronized void delete(String key) {
      byKey.remove(key);
    }

    @Override
    public Map<Integer, String> impostors() {
      synchronized (StoreServer.this) {
        return Map.copyOf(impostors);
      }
    }

    @Override
    public String report() {
      synchronized (StoreServer.this) {
        String more = rejected > MAX_REPORTED ? "; and " + (rejected - MAX_REPORTED) + " more" : "";
        String text = String.join("; ", rejections) + more;
        return rejected == 0 ? "" : "; rejected " + rejected + " clients: " + text;
      }
    }

    @Override
    public void close() {
      // Stays open for the next round.
    }
  }

  private void acceptAll() {
    while (listener.isOpen()) {
      try {
        accept(listener.accept());
      } catch (Throwable e) {
        // A failure of one client must not end this thread, on which all ranks depend.
        if (listener.isOpen()) {
          recoverFrom(e);
        }
      }
    }
  }

  /** Continues after a failure, such as no free file descriptors, by dropping the oldest client. */
  private void recoverFrom(Throwable failure) {
    synchronized (this) {
      drop(pending.removeOldest());
    }
    try {
      Thread.sleep(ACCEPT_RETRY_DELAY);
    } catch (InterruptedException e) {
      throw new IllegalStateException("the accepting thread is never interrupted", e);
    }
    // After the drop, since a logger may need a file descriptor too.
    failures.log(LOG, "rank 0 could not accept a client: " + failure);
  }

  private void accept(SocketChannel client) {
    synchronized (this) {
      if (closed) {
        close(client);
        return;
      }
      drop(pending.add(client));
    }
    Thread.ofVirtual().name("nccl4j-rendezvous-client").start(() -> serve(client));
  }

  private void drop(SocketChannel oldest) {
    if (oldest != null) {
      reject(oldest, "was dropped because too many clients did not authenticate");
      close(oldest);
    }
  }

  private static void close(SocketChannel client) {
    try {
      client.close();
    } catch (IOException e) {
      LOG.warn("rank 0 could not close a client's connection: {}", e.toString());
    }
  }

  /** Serves one client until its connection ends. */
  private void serve(SocketChannel client) {
    try {
      client.socket().setTcpNoDelay(true);
      authenticate(client);
      converse(client.socket());
    } catch (IOException e) {
      recordEnd(client, e);
    } catch (RuntimeException | Error e) {
      failures.log(LOG, "rank 0 could not serve a client: " + e);
    } finally {
      synchronized (this) {
        pending.remove(client);
        admitted.remove(client);
        close(client);
      }
    }
  }

  /** Records a rejection; a rank may leave at any time, and a dropped client is recorded before. */
  private synchronized void recordEnd(SocketChannel client, IOException e) {
    boolean invalid = e instanceof ProtocolException;
    boolean wasPending = pending.remove(client);
    if (!closed && (wasPending || invalid)) {
      boolean late = e instanceof SocketTimeoutException;
      reject(client, invalid ? e.getMessage() : late ? "did not authenticate in time" : "left");
    }
  }

  private static String name(SocketChannel client) {
    InetAddress address = client.socket().getInetAddress();
    return address == null
        ? "a client"
        : address.getHostAddress() + ":" + client.socket().getPort();
  }

  /** Returns if the client is a rank of the run. */
  private void authenticate(SocketChannel client) throws IOException {
    Socket socket = client.socket();
    Deadline deadline = Deadline.after(CLAIM_TIMEOUT);
    byte[] greeting = Handshake.greeting();
    socket.getOutputStream().write(greeting);
    byte[] header = TorchStore.read(socket, Handshake.HEADER_BYTES, deadline);
    if (!Handshake.hasMagic(header)) {
      throw new ProtocolException("does not speak the protocol of nccl4j");
    }
    if (!Handshake.hasVersion(header)) {
      throw refused(socket, Handshake.WRONG_VERSION, "uses another version of nccl4j");
    }
    ByteBuffer claim = ByteBuffer.allocate(Handshake.CLAIM_BYTES).put(header);
    claim.put(TorchStore.read(socket, claim.remaining(), deadline));
    byte[] proof = TorchStore.read(socket, SessionKeys.PROOF_BYTES, deadline);
    claim.position(Handshake.HEADER_BYTES);
    if (!Token.read(claim).equals(run)) {
      throw refused(socket, Handshake.OTHER_RUN, "belongs to another run");
    }
    int rank = claim.getInt();
    if (!Handshake.isProof(proof, greeting, claim.array(), secret)) {
      String reason = "claims rank " + rank + " and does not know the secret";
      noteImpostor(rank, name(client) + " " + reason);
      throw refused(socket, Handshake.WRONG_SECRET, reason);
    }
    admit(client, rank);
    socket.getOutputStream().write(Handshake.ADMITTED);
  }

  private static ProtocolException refused(Socket socket, int verdict, String reason)
      throws IOException {
    socket.getOutputStream().write(verdict);
    return new ProtocolException(reason);
  }

  private synchronized void noteImpostor(int rank, String text) {
    if (rank > 0 && rank < self.size()) {
      impostors.put(rank, text);
    }
  }

  private synchronized void admit(SocketChannel client, int rank) throws IOException {
    if (closed || !pending.remove(client)) {
      throw new ClosedChannelException();
    }
    impostors.remove(rank);
    admitted.add(client);
  }

  /** Answers the requests of a {@link TorchStore}. */
  private void converse(Socket socket) throws IOException {
    OutputStream out = socket.getOutputStream();
    while (true) {
      int type = read(socket, 1)[0];
      switch (type) {
        case TorchStore.SET -> values.set(key(socket), sized(socket, Store.MAX_VALUE_BYTES));
        case TorchStore.CHECK -> {
          // The number of keys is 1.
          read(socket, Long.BYTES);
          boolean ready = values.get(key(socket)).length > 0;
          out.write(ready ? TorchStore.READY : TorchStore.NOT_READY);
        }
        case TorchStore.GET -> {
          byte[] value = values.get(key(socket));
          out.write(TorchStore.bytes(value.length));
          out.write(value);
        }
        case TorchStore.PING -> out.write(read(socket, Integer.BYTES));
        default -> throw new ProtocolException("sent a request of the unknown type " + type);
      }
    }
  }

  private static byte[] read(Socket socket, int length) throws IOException {
    return TorchStore.read(socket, length, Deadline.after(SERVED));
  }

  private static byte[] sized(Socket socket, int limit) throws IOException {
    long length = TorchStore.number(read(socket, Long.BYTES));
    if (length < 0 || length > limit) {
      throw new ProtocolException("sent a request with " + length + " bytes");
    }
    return read(socket, (int) length);
  }

  private static String key(Socket socket) throws IOException {
    return new String(sized(socket, MAX_KEY_BYTES), StandardCharsets.UTF_8);
  }

  private synchronized void reject(SocketChannel client, String reason) {
    String text = name(client) + " " + reason;
    LOG.debug("rank 0 rejected {}", text);
    rejected++;
    if (rejections.size() < MAX_REPORTED) {
      rejections.add(text);
    }
  }

  /** Stops listening and disconnects all clients. */
  @Override
  public void close() throws IOException {
    synchronized (this) {
      closed = true;
      listener.close();
      pending.all().forEach(StoreServer::close);
      admitted.forEach(StoreServer::close);
    }
    try {
      // The port is free once the accepting thread has ended.
      if (!acceptor.join(CLOSE_TIMEOUT)) {
        LOG.warn("port of rank 0 is closed, but not yet free: {}", listener);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      LOG.debug("interrupted while waiting for the port of rank 0 to become free");
    }
  }
}
