package io.nccl4j.reference;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

/** Stands between a process that joins and the one that made an id, and hears what they say. */
final class Relay implements AutoCloseable {
  private final ServerSocket listener;
  private final InetSocketAddress target;
  private final ByteArrayOutputStream heard = new ByteArrayOutputStream();
  private final List<Socket> open = new ArrayList<>();

  Relay(UniqueId id) throws IOException {
    this.listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    this.target = ReferenceId.of(id).maker().address();
  }

  /** Returns the id as it would be if its maker listened here. */
  UniqueId redirect(UniqueId id) {
    ReferenceId meaning = ReferenceId.of(id);
    ProcessAddress maker = meaning.maker();
    InetSocketAddress here = (InetSocketAddress) listener.getLocalSocketAddress();
    return new ReferenceId(
            new ProcessAddress(maker.process(), maker.host(), here, maker.pid(), maker.hostName()),
            meaning.secret())
        .toUniqueId();
  }

  /** Passes one connection on, in both directions. */
  void passOn() {
    inBackground(
        () -> {
          Socket client = accept();
          Socket server = connect();
          inBackground(() -> pass(server.getInputStream(), client.getOutputStream()));
          pass(client.getInputStream(), server.getOutputStream());
        });
  }

  /**
   * Shows a client what the target sends on one connection, and sends what the client answers over
   * another.
   *
   * @return that other connection
   */
  Socket crossOver() throws IOException {
    Socket replayed = connect();
    inBackground(
        () -> {
          Socket client = accept();
          Socket greeting = connect();
          inBackground(() -> pass(greeting.getInputStream(), client.getOutputStream()));
          pass(client.getInputStream(), replayed.getOutputStream());
        });
    return replayed;
  }

  /** Returns all that was said so far, in both directions. */
  byte[] heard() {
    synchronized (heard) {
      return heard.toByteArray();
    }
  }

  private interface Step {
    void run() throws IOException;
  }

  private static void inBackground(Step work) {
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              try {
                work.run();
              } catch (IOException e) {
                // A side has ended, as every connection here does.
              }
            });
  }

  private Socket accept() throws IOException {
    return keep(listener.accept());
  }

  private Socket connect() throws IOException {
    return keep(new Socket(target.getAddress(), target.getPort()));
  }

  private synchronized Socket keep(Socket socket) {
    open.add(socket);
    return socket;
  }

  private void pass(InputStream from, OutputStream to) throws IOException {
    byte[] bytes = new byte[4096];
    for (int count = from.read(bytes); count >= 0; count = from.read(bytes)) {
      synchronized (heard) {
        heard.write(bytes, 0, count);
      }
      to.write(bytes, 0, count);
    }
  }

  @Override
  public synchronized void close() throws IOException {
    listener.close();
    for (Socket socket : open) {
      socket.close();
    }
  }
}
