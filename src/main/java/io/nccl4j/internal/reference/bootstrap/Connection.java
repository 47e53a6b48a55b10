package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.auth.AeadCipher;
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
import org.apache.logging.log4j.LogManager;

/**
 * A connection to another process, for messages. The thread of the {@link EventLoop} reads them;
 * any thread may send, and none ever waits. It begins with a {@link Handshake}; until that is done,
 * what is sent waits, and what comes must be short.
 */
public final class Connection {
  /** Who is told what comes, in the thread of the site. */
  public interface Receiver {
    /**
     * Takes a message.
     *
     * @throws IOException if it makes no sense; the connection is closed then
     */
    void receive(Connection from, Message message) throws IOException;

    /**
     * Is told that nothing more will come.
     *
     * @param why what happened, where the other process has not simply closed its end; else null
     * @param nonsense whether the other process has sent what makes no sense
     */
    void ended(Connection from, String why, boolean nonsense);
  }

  /** How long a connection that is closed may take to send what is left. */
  private static final long CLOSING_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final SocketChannel channel;
  private final String peer;
  private final ByteBuffer header = ByteBuffer.allocate(Message.HEADER_BYTES);
  // Guards what follows up to the key, and all that is sent.
  private final ArrayDeque<ByteBuffer> unsent = new ArrayDeque<>();
  private final ArrayDeque<ByteBuffer> unsealed = new ArrayDeque<>();
  private AeadCipher sealer;
  private boolean closing;
  private long closingSince;
  private boolean ended;
  private SelectionKey key;
  // What follows is for the thread of the loop alone.
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

  /** Takes a channel that this process has connected; it claims what it wants when greeted. */
  static Connection connected(SocketChannel channel, Receiver receiver, Handshake.Opening opening)
      throws IOException {
    Connection made = new Connection(channel, receiver, opening);
    made.greeting = ByteBuffer.allocate(Handshake.GREETING_BYTES);
    return made;
  }

  /** Takes a channel that this process has accepted; the other side is greeted. */
  static Connection accepted(SocketChannel channel, Receiver receiver, byte[] greeting)
      throws IOException {
    Connection made = new Connection(channel, receiver, null);
    made.unsent.add(ByteBuffer.wrap(greeting));
    return made;
  }

  /** Begins to receive. */
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

  /** Reads no further until {@link #resume}; in the thread of the site. */
  void pause() {
    synchronized (unsent) {
      paused = true;
      key.interestOps(interest());
    }
  }

  /** Reads on; in the thread of the site. */
  void resume() {
    synchronized (unsent) {
      paused = false;
      if (key.isValid()) {
        key.interestOps(interest());
      }
    }
  }

  /** Names another who is told; in the thread of the site. */
  public void setReceiver(Receiver next) {
    receiver = next;
  }

  /**
   * Seals what is sent from now on, and what has waited for that, and takes nothing that is not
   * sealed; in the thread of the site.
   */
  void secure(AeadCipher outgoing, AeadCipher arriving) {
    opener = arriving;
    synchronized (unsent) {
      sealer = outgoing;
      while (!unsealed.isEmpty()) {
        addSealed(unsealed.remove());
      }
      flush();
    }
  }

  /** Returns the channel to somebody who will read what follows the last message. */
  public SocketChannel detach() {
    key.cancel();
    return channel;
  }

  /**
   * Sends a message as soon as the other process takes it; what cannot be sent is dropped.
   *
   * @throws OutOfMemoryError if there is no memory for it; nothing is sent then
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
      addSealed(message);
      flush();
    }
  }

  /** Adds a message to the unsent ones, or nothing: a message that is sealed must be sent. */
  private void addSealed(ByteBuffer message) {
    // Before it is sealed, since the queue may have to grow.
    unsent.add(message);
    ByteBuffer sealed;
    try {
      sealed = sealed(message);
    } finally {
      unsent.removeLast();
    }
    unsent.add(sealed);
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
      // The thread that reads finds the connection broken, and reports why.
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

  /** Sends what is left, then closes; nobody is told anything any more. */
  public void close() {
    synchronized (unsent) {
      if (!closing) {
        closing = true;
        closingSince = System.nanoTime();
      }
      flush();
    }
  }

  /** Closes without sending what is left. */
  void cut() {
    synchronized (unsent) {
      closing = true;
      unsent.clear();
      unsealed.clear();
      closeChannel();
    }
  }

  /** Closes what was to be closed long ago, where the other process does not take what is left. */
  void cutIfLate(long now) {
    synchronized (unsent) {
      if (closing && now - closingSince > CLOSING_NANOS) {
        cut();
      }
    }
  }

  private void closeChannel() {
    try {
      channel.close();
    } catch (IOException e) {
      LogManager.getLogger(Connection.class)
          .warn("the connection to {} could not be closed", peer, e);
    }
  }

  /** Event loop: does what the channel is ready for. */
  void proceed() {
    synchronized (unsent) {
      // Another thread may close the connection, but not meanwhile.
      if (key.isValid() && key.isWritable()) {
        flush();
      }
    }
    try {
      while (!paused && channel.isOpen() && key.isValid() && readMessage()) {
        // One message after the other.
      }
    } catch (AEADBadTagException e) {
      end("a message is not sealed with the secret", true);
    } catch (ProtocolException e) {
      end(e.getMessage(), true);
    } catch (EOFException | UTFDataFormatException e) {
      end("a message says less than its kind needs", true);
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
      incoming = Message.begin(header, mostBytes());
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

  private int mostBytes() {
    return opener == null ? Handshake.MOST_CLAIM_BYTES : Message.MOST_BYTES + AeadCipher.TAG_BYTES;
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
      boolean between =
          greeting != null ? greeting.position() == 0 : incoming == null && header.position() == 0;
      end(between ? null : "it was closed in the middle of a message", false);
      return false;
    }
    return !buffer.hasRemaining();
  }

  private void end(String why, boolean nonsense) {
    boolean told;
    synchronized (unsent) {
      told = !closing && !ended;
      ended = true;
    }
    if (told) {
      receiver.ended(this, why, nonsense);
    }
    close();
    cut();
  }

  /** Ends a connection that nothing sensible came over; in the thread of the site. */
  void refuse(String why) {
    end(why, true);
  }

  /** Ends a connection for a reason of this process; in the thread of the site. */
  void fail(String why) {
    end(why, false);
  }

  @Override
  public String toString() {
    return peer;
  }
}
