package io.nccl4j.examples.fuzzing;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.random.RandomGenerator;

/** A connection that sends any bytes, and expects the other side to close it at any time. */
public final class RawConnection implements AutoCloseable {
  private static final int CONNECT_MILLIS = 5000;
  private static final int MOST_SLOW_BYTES = 200;

  private final Socket socket = new Socket();
  private boolean cutOff;

  /**
   * Connects.
   *
   * @param to where to
   * @throws IOException if nobody listens there any more
   */
  public RawConnection(SocketAddress to) throws IOException {
    socket.connect(to, CONNECT_MILLIS);
    socket.setTcpNoDelay(true);
  }

  /** {@return what the other side sends, to be read by hand} */
  public InputStream input() throws IOException {
    return socket.getInputStream();
  }

  /**
   * Sends bytes: at once, in two pieces, or the first ones one by one with pauses.
   *
   * @return whether they were sent; false if the other side has closed
   */
  public boolean send(byte[] bytes, RandomGenerator random) {
    return send(socket, bytes, random);
  }

  /** Sends bytes over any socket, as {@link #send(byte[], RandomGenerator)} does. */
  public static boolean send(Socket socket, byte[] bytes, RandomGenerator random) {
    try {
      OutputStream out = socket.getOutputStream();
      int sent = 0;
      switch (random.nextInt(16)) {
        case 0 -> {
          for (; sent < Math.min(bytes.length, MOST_SLOW_BYTES); sent++) {
            out.write(bytes[sent]);
            LockSupport.parkNanos(20_000);
          }
        }
        case 1, 2, 3 -> {
          sent = random.nextInt(bytes.length + 1);
          out.write(bytes, 0, sent);
          LockSupport.parkNanos(200_000);
        }
        default -> {
          // At once, below.
        }
      }
      out.write(bytes, sent, bytes.length - sent);
      return true;
    } catch (IOException e) {
      return false;
    }
  }

  /** Says that nothing more will be sent. */
  public void end() {
    try {
      socket.shutdownOutput();
    } catch (IOException e) {
      // The other side has closed, which is what is waited for next.
    }
  }

  /** {@return what the other side sends until it closes, or until the limit passes} */
  public byte[] answer(Duration limit) {
    ByteArrayOutputStream answer = new ByteArrayOutputStream();
    byte[] some = new byte[4096];
    long end = System.nanoTime() + limit.toNanos();
    try {
      while (!cutOff && System.nanoTime() < end) {
        socket.setSoTimeout((int) Math.max(1, (end - System.nanoTime()) / 1_000_000));
        int count = socket.getInputStream().read(some);
        cutOff = count < 0;
        answer.write(some, 0, Math.max(0, count));
      }
    } catch (SocketTimeoutException e) {
      return answer.toByteArray();
    } catch (IOException e) {
      // Reset, because bytes of ours were on the way.
      cutOff = true;
    }
    return answer.toByteArray();
  }

  /** {@return whether the other side has closed, as far as {@link #answer} has seen} */
  public boolean cutOff() {
    return cutOff;
  }

  @Override
  public void close() throws IOException {
    socket.close();
  }
}
