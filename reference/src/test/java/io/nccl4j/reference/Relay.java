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

/** A relay between a joining process and the one that created an id; it records the traffic. */
final class Relay implements AutoCloseable {
  private final ServerSocket listener;
  private final InetSocketAddress target;
  private final ByteArrayOutputStream recorded = new ByteArrayOutputStream();
  private final List<Socket> open = new ArrayList<>();

  Relay(UniqueId id) throws IOException {
    this.listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    this.target = ReferenceId.of(id).maker().address();
  }

  /** Returns the id with the address of this relay. */
  UniqueId redirect(UniqueId id) {
    ReferenceId referenceId = ReferenceId.of(id);
    ProcessAddress maker = referenceId.maker();
    InetSocketAddress here = (InetSocketAddress) listener.getLocalSocketAddress();
    return new ReferenceId(
            new ProcessAddress(maker.process(), maker.host(), here, maker.pid(), maker.hostName()),
            referenceId.secret())
        .toUniqueId();
  }

  /** Relays one connection, in both directions. */
  void relayOne() {
    inBackground(
        () -> {
          Socket client = accept();
          Socket server = connect();
          inBackground(() -> pass(server.getInputStream(), client.getOutputStream()));
          pass(client.getInputStream(), server.getOutputStream());
        });
  }

  /**
   * Relays to a client what the target sends on one connection, and relays the client's answers to
   * the target over another connection.
   *
   * @return the other connection
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

  /** Returns all bytes relayed so far, in both directions. */
  byte[] recorded() {
    synchronized (recorded) {
      return recorded.toByteArray();
    }
  }

  private interface Step {
    void run() throws IOException;
  }

  private static void inBackground(Step step) {
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              try {
                step.run();
              } catch (IOException e) {
                // One side has closed the connection, as expected.
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
      synchronized (recorded) {
        recorded.write(bytes, 0, count);
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
