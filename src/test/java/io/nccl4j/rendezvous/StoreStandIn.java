package io.nccl4j.rendezvous;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * A stand-in for PyTorch's TCP store, as strict as its strictest implementation: a client that
 * requests an absent key or an unknown operation is disconnected. Its answers can be overridden.
 */
final class StoreStandIn implements AutoCloseable {
  static final int CHECK = 5;
  static final int GET = 3;
  static final int PING = 13;

  private final ServerSocket listener;
  private final Queue<Socket> clients = new ConcurrentLinkedQueue<>();
  private final Map<Integer, byte[]> overridden = new ConcurrentHashMap<>();
  // Guarded by itself.
  private final Map<String, byte[]> values = new TreeMap<>();

  StoreStandIn() throws IOException {
    this(0);
  }

  StoreStandIn(int port) throws IOException {
    listener = new ServerSocket(port, 50, InetAddress.getLoopbackAddress());
    Thread.ofPlatform().daemon().start(this::acceptAll);
  }

  /** Sets the answer to all requests of a type. */
  StoreStandIn override(int request, byte... answer) {
    overridden.put(request, answer);
    return this;
  }

  int port() {
    return listener.getLocalPort();
  }

  Map<String, byte[]> values() {
    synchronized (values) {
      return Map.copyOf(values);
    }
  }

  /** Waits until a key with this suffix has a value. */
  void awaitKey(String end) throws InterruptedException {
    synchronized (values) {
      while (values.keySet().stream().noneMatch(name -> name.endsWith(end))) {
        values.wait();
      }
    }
  }

  private void acceptAll() {
    try {
      while (true) {
        Socket client = listener.accept();
        clients.add(client);
        Thread.ofPlatform().daemon().start(() -> serve(client));
      }
    } catch (IOException e) {
      if (!listener.isClosed()) {
        throw new IllegalStateException(e);
      }
    }
  }

  private void serve(Socket client) {
    try (client) {
      DataInputStream in = new DataInputStream(client.getInputStream());
      DataOutputStream out = new DataOutputStream(client.getOutputStream());
      if (in.read() == 0 && native32(in.readInt()) == 0x3C85F7CE) {
        while (answer(in.read(), in, out)) {}
      }
    } catch (EOFException | SocketException e) {
      // The client has disconnected, or the store is closed.
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Answers a request; returns false if the client is to be disconnected. */
  private boolean answer(int request, DataInputStream in, DataOutputStream out) throws IOException {
    switch (request) {
      case 1 -> set(text(in), bytes(in));
      case CHECK -> {
        boolean ready = has(singleKey(in));
        reply(out, request, (byte) (ready ? 0 : 1));
      }
      case GET -> {
        byte[] value = values().get(text(in));
        if (value == null) {
          return false;
        }
        reply(out, request, value.length, value);
      }
      case PING -> reply(out, request, in.readNBytes(Integer.BYTES));
      default -> {
        return false;
      }
    }
    return true;
  }

  private void reply(DataOutputStream out, int request, long number, byte[] rest)
      throws IOException {
    byte[] answer = new byte[Long.BYTES + rest.length];
    ByteBuffer.wrap(answer).order(ByteOrder.nativeOrder()).putLong(number).put(rest);
    reply(out, request, answer);
  }

  private void reply(DataOutputStream out, int request, byte... answer) throws IOException {
    out.write(overridden.getOrDefault(request, answer));
  }

  void set(String name, byte[] value) {
    synchronized (values) {
      values.put(name, value);
      values.notifyAll();
    }
  }

  private boolean has(String name) {
    return values().containsKey(name);
  }

  private static String singleKey(DataInputStream in) throws IOException {
    if (native64(in.readLong()) != 1) {
      throw new IOException("one key was expected");
    }
    return text(in);
  }

  private static String text(DataInputStream in) throws IOException {
    return new String(bytes(in), StandardCharsets.UTF_8);
  }

  private static byte[] bytes(DataInputStream in) throws IOException {
    return in.readNBytes(Math.toIntExact(native64(in.readLong())));
  }

  private static int native32(int read) {
    return ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN ? read : Integer.reverseBytes(read);
  }

  private static long native64(long read) {
    return ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN ? read : Long.reverseBytes(read);
  }

  @Override
  public void close() throws IOException {
    listener.close();
    for (Socket client : clients) {
      client.close();
    }
  }
}
