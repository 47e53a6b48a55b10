package io.nccl4j.reference;

import java.io.EOFException;
import java.io.IOException;
import java.io.UTFDataFormatException;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;

/**
 * A connection to another process, for messages. The thread of the {@link Site} reads them; any
 * thread may send, and none ever waits.
 */
final class Connection {
  /** Who is told what comes, in the thread of the site. */
  interface Receiver {
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

  private final SocketChannel channel;
  private final String peer;
  private final ByteBuffer header = ByteBuffer.allocate(Message.HEADER_BYTES);
  private final ArrayDeque<ByteBuffer> unsent = new ArrayDeque<>();
  private SelectionKey key;
  private Message incoming;
  private Receiver receiver;
  private boolean paused;
  private boolean closing;
  private boolean ended;

  /** Takes a channel that is connected. */
  Connection(SocketChannel channel, Receiver receiver) throws IOException {
    this.channel = channel;
    this.receiver = receiver;
    this.peer = String.valueOf(channel.getRemoteAddress());
    channel.configureBlocking(false);
  }

  /** Begins to receive. */
  void register(Selector selector) throws IOException {
    synchronized (unsent) {
      key = channel.register(selector, interest(), this);
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
  void tell(Receiver next) {
    receiver = next;
  }

  /** Returns the channel to somebody who will read what follows the last message. */
  SocketChannel detach() {
    key.cancel();
    return channel;
  }

  /** Sends a message as soon as the other process takes it; what cannot be sent is dropped. */
  void send(ByteBuffer message) {
    synchronized (unsent) {
      if (closing || !channel.isOpen()) {
        return;
      }
      unsent.add(message);
      flush();
    }
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
      // Whoever reads finds the connection broken, and tells why.
      unsent.clear();
    }
    if (key != null && key.isValid() && key.interestOps() != interest()) {
      key.interestOps(interest());
      key.selector().wakeup();
    }
    if (closing && unsent.isEmpty()) {
      closeChannel();
    }
  }

  /** Sends what is left, then closes; nobody is told anything any more. */
  void close() {
    synchronized (unsent) {
      closing = true;
      flush();
    }
  }

  /** Closes without sending what is left. */
  void cut() {
    synchronized (unsent) {
      closing = true;
      unsent.clear();
      closeChannel();
    }
  }

  private void closeChannel() {
    try {
      channel.close();
    } catch (IOException e) {
      Site.log().warn("the connection to {} could not be closed", peer, e);
    }
  }

  boolean open() {
    return channel.isOpen();
  }

  /** Site: does what the channel is ready for. */
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
    } catch (ProtocolException e) {
      end(e.getMessage(), true);
    } catch (EOFException | UTFDataFormatException e) {
      end("a message says less than its kind needs", true);
    } catch (IOException e) {
      end(e.getMessage(), false);
    }
  }

  private boolean readMessage() throws IOException {
    if (incoming == null) {
      if (!readInto(header)) {
        return false;
      }
      incoming = Message.begin(header);
      header.clear();
    }
    if (!readInto(incoming.body())) {
      return false;
    }
    Message whole = incoming;
    incoming = null;
    receiver.receive(this, whole);
    return true;
  }

  private boolean readInto(ByteBuffer buffer) throws IOException {
    if (buffer.hasRemaining() && channel.read(buffer) < 0) {
      boolean between = incoming == null && header.position() == 0;
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

  @Override
  public String toString() {
    return peer;
  }
}
