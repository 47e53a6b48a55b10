package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.auth.AeadCipher;
import io.nccl4j.internal.util.Loggers;
import java.io.EOFException;
import java.io.IOException;
import java.io.UTFDataFormatException;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import javax.crypto.AEADBadTagException;

/**
 * A connection to another process, for messages. The thread of the {@link EventLoop} reads them;
 * any thread may send, without waiting. A connection begins with a {@link Handshake}; until that is
 * done, sent messages are queued, and received messages must be short.
 */
public final class Connection {
  /** Receives the messages of a connection, in the thread of the event loop. */
  public interface Receiver {
    /**
     * Called for each message.
     *
     * @throws IOException if the message is invalid; the connection is then closed
     */
    void receive(Connection from, Message message) throws IOException;

    /**
     * Called when the connection has ended.
     *
     * @param why the reason; null if the other process has closed its end between two messages
     * @param protocolViolation whether the other process has violated the protocol
     */
    void ended(Connection from, String why, boolean protocolViolation);
  }

  /** How long a closing connection may take to send its remaining messages. */
  private static final long CLOSING_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final SocketChannel channel;
  private final String peer;
  private final ByteBuffer header = ByteBuffer.allocate(Message.HEADER_BYTES);
  // The lock for the fields up to key, and for sending.
  private final ArrayDeque<ByteBuffer> unsent = new ArrayDeque<>();
  private final ArrayDeque<ByteBuffer> unsealed = new ArrayDeque<>();
  private AeadCipher sealer;
  private boolean closing;
  private long closingSince;
  private boolean ended;
  private SelectionKey key;
  // The fields below are used by the thread of the event loop only.
  private final Handshake.Opening opening;
  private ByteBuffer greeting;
  private AeadCipher opener;
  private Message incoming;
  private Receiver receiver;
  private boolean paused;

  private Connection(SocketChannel channel, Receiver receiver, Handshake.Opening opening)
      throws IOException {
    this.channel = channel;
    this.receiver = receiver;
    this.opening = opening;
    this.peer = String.valueOf(channel.getRemoteAddress());
    channel.configureBlocking(false);
  }

  /** Wraps a channel that this process has connected; it sends its claim when greeted. */
  static Connection connected(SocketChannel channel, Receiver receiver, Handshake.Opening opening)
      throws IOException {
    Connection made = new Connection(channel, receiver, opening);
    made.greeting = ByteBuffer.allocate(Handshake.GREETING_BYTES);
    return made;
  }

  /** Wraps a channel that this process has accepted; it sends a greeting. */
  static Connection accepted(SocketChannel channel, Receiver receiver, byte[] greeting)
      throws IOException {
    Connection made = new Connection(channel, receiver, null);
    made.unsent.add(ByteBuffer.wrap(greeting));
    return made;
  }

  /** Starts to receive. */
  void register(Selector selector) throws IOException {
    synchronized (unsent) {
      key = channel.register(selector, interest(), this);
      flush();
    }
    selector.wakeup();
  }

  private int interest() {
    return (paused ? 0 : SelectionKey.OP_READ) | (unsent.isEmpty() ? 0 : SelectionKey.OP_WRITE);
  }

  /** Stops reading until {@link #resume}; in the thread of the event loop. */
  void pause() {
    synchronized (unsent) {
      paused = true;
      key.interestOps(interest());
    }
  }

  /** Continues reading; in the thread of the event loop. */
  void resume() {
    synchronized (unsent) {
      paused = false;
      if (key.isValid()) {
        key.interestOps(interest());
      }
    }
  }

  /** Replaces the receiver; in the thread of the event loop. */
  public void setReceiver(Receiver next) {
    receiver = next;
  }

  /**
   * Seals the queued messages and all later ones, and from now on accepts sealed messages only; in
   * the thread of the event loop.
   */
  void secure(AeadCipher outgoing, AeadCipher arriving) {
    opener = arriving;
    synchronized (unsent) {
      sealer = outgoing;
      while (!unsealed.isEmpty()) {
        unsent.add(sealed(unsealed.remove()));
      }
      flush();
    }
  }

  /** Returns the channel to a caller that reads the data after the last message. */
  public SocketChannel detach() {
    key.cancel();
    return channel;
  }

  /**
   * Sends a message as soon as the other process accepts it. Messages for a closed or broken
   * connection are dropped.
   */
  public void send(ByteBuffer message) {
    synchronized (unsent) {
      if (closing || !channel.isOpen()) {
        return;
      }
      if (sealer == null) {
        unsealed.add(message);
        return;
      }
      unsent.add(sealed(message));
      flush();
    }
  }

  private ByteBuffer sealed(ByteBuffer message) {
    byte[] whole = new byte[message.remaining()];
    message.duplicate().get(whole);
    byte[] plain = Arrays.copyOfRange(whole, Message.HEADER_BYTES, whole.length);
    byte[] head = Message.headerOf(whole, plain.length + AeadCipher.TAG_BYTES);
    ByteBuffer sealed = ByteBuffer.allocate(whole.length + AeadCipher.TAG_BYTES).put(head);
    return sealed.put(sealer.seal(plain, head)).flip();
  }

  private void flush() {
    try {
      while (!unsent.isEmpty()) {
        channel.write(unsent.peek());
        if (unsent.peek().hasRemaining()) {
          break;
        }
        unsent.remove();
      }
    } catch (IOException e) {
      // The reading thread finds the connection broken, and reports why.
      unsent.clear();
    }
    if (key != null && key.isValid() && key.interestOps() != interest()) {
      key.interestOps(interest());
      key.selector().wakeup();
    }
    if (closing && unsent.isEmpty() && unsealed.isEmpty()) {
      closeChannel();
    }
  }

  /** Sends the queued messages, then closes. The receiver is not notified any more. */
  public void close() {
    synchronized (unsent) {
      if (!closing) {
        closing = true;
        closingSince = System.nanoTime();
      }
      flush();
    }
  }

  /** Closes without sending the queued messages. */
  void closeNow() {
    synchronized (unsent) {
      closing = true;
      unsent.clear();
      unsealed.clear();
      closeChannel();
    }
  }

  /** Closes at once if closing has taken too long, since the other process does not read. */
  void closeIfOverdue(long now) {
    synchronized (unsent) {
      if (closing && now - closingSince > CLOSING_NANOS) {
        closeNow();
      }
    }
  }

  private void closeChannel() {
    try {
      channel.close();
    } catch (IOException e) {
      Loggers.of(Connection.class).warn("the connection to {} could not be closed", peer, e);
    }
  }

  /** Reads and writes as far as the channel is ready; in the thread of the event loop. */
  void proceed() {
    synchronized (unsent) {
      // The lock keeps other threads from closing the connection between check and write.
      if (key.isValid() && key.isWritable()) {
        flush();
      }
    }
    try {
      while (!paused && channel.isOpen() && key.isValid() && readMessage()) {
        // Reads one message per iteration.
      }
    } catch (AEADBadTagException e) {
      end("a message is not sealed with the secret", true);
    } catch (ProtocolException e) {
      end(e.getMessage(), true);
    } catch (EOFException | UTFDataFormatException e) {
      end("a message is shorter than its kind requires", true);
    } catch (IOException e) {
      end(e.getMessage(), false);
    }
  }

  private boolean readMessage() throws IOException, AEADBadTagException {
    if (greeting != null) {
      return readGreeting();
    }
    if (incoming == null) {
      if (!readInto(header)) {
        return false;
      }
      incoming = Message.begin(header, maxBytes());
    }
    if (!readInto(incoming.body())) {
      return false;
    }
    Message whole = incoming;
    incoming = null;
    header.clear();
    receiver.receive(
        this, opener == null ? whole : whole.with(opener.open(whole.bytes(), header.array())));
    return true;
  }

  private int maxBytes() {
    return opener == null ? Handshake.MAX_CLAIM_BYTES : Message.MAX_BYTES + AeadCipher.TAG_BYTES;
  }

  private boolean readGreeting() throws IOException {
    if (!readInto(greeting)) {
      return false;
    }
    Handshake.Answer answer = opening.answer(greeting.array());
    greeting = null;
    synchronized (unsent) {
      unsent.add(answer.message());
    }
    secure(answer.keys().toAcceptor(), answer.keys().toConnector());
    return true;
  }

  private boolean readInto(ByteBuffer buffer) throws IOException {
    if (buffer.hasRemaining() && channel.read(buffer) < 0) {
      boolean betweenMessages =
          greeting != null ? greeting.position() == 0 : incoming == null && header.position() == 0;
      end(betweenMessages ? null : "it was closed in the middle of a message", false);
      return false;
    }
    return !buffer.hasRemaining();
  }

  private void end(String why, boolean protocolViolation) {
    boolean notify;
    synchronized (unsent) {
      notify = !closing && !ended;
      ended = true;
    }
    if (notify) {
      receiver.ended(this, why, protocolViolation);
    }
    close();
    closeNow();
  }

  /** Closes a connection that has violated the protocol; in the thread of the event loop. */
  void refuse(String why) {
    end(why, true);
  }

  /** Closes a connection for a reason in this process; in the thread of the event loop. */
  void fail(String why) {
    end(why, false);
  }

  @Override
  public String toString() {
    return peer;
  }
}
