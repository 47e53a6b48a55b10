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
 * A stand-in for PyTorch's TCP store, as strict as its strictest implementation: whoever asks for
 * what is not there, or for what is not known, is cut off. Its answers can be spoilt.
 */
final class StoreStandIn implements AutoCloseable {
  static final int CHECK = 5;
  static final int WAIT = 6;
  static final int GET = 3;
  static final int DELETE_KEY = 8;
  static final int PING = 13;

  private final ServerSocket listener;
  private final Queue<Socket> clients = new ConcurrentLinkedQueue<>();
  private final Map<Integer, byte[]> spoilt = new ConcurrentHashMap<>();
  // Guarded by itself.
  private final Map<String, byte[]> values = new TreeMap<>();

  StoreStandIn() throws IOException {
    this(0);
  }

  StoreStandIn(int port) throws IOException {
    listener = new ServerSocket(port, 50, InetAddress.getLoopbackAddress());
    Thread.ofPlatform().daemon().start(this::acceptAll);
  }

  /** Answers such requests so, instead of the truth. */
  StoreStandIn spoil(int request, byte... answer) {
    spoilt.put(request, answer);
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

  /** Waits until a value whose name ends so is there. */
  void awaitName(String end) throws InterruptedException {
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
      // The client has left, or the store has closed.
    } catch (IOException | InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns false if the client is to be cut off. */
  private boolean answer(int request, DataInputStream in, DataOutputStream out)
      throws IOException, InterruptedException {
    switch (request) {
      case 1 -> set(text(in), bytes(in));
      case CHECK -> {
        boolean ready = has(only(in));
        say(out, request, (byte) (ready ? 0 : 1));
      }
      case WAIT -> {
        await(only(in));
        say(out, request, (byte) 0);
      }
      case GET -> {
        byte[] value = values().get(text(in));
        if (value == null) {
          return false;
        }
        say(out, request, value.length, value);
      }
      case DELETE_KEY -> say(out, request, delete(text(in)) ? 1 : 0, new byte[0]);
      case PING -> say(out, request, in.readNBytes(Integer.BYTES));
      default -> {
        return false;
      }
    }
    return true;
  }

  private void say(DataOutputStream out, int request, long number, byte[] rest) throws IOException {
    byte[] answer = new byte[Long.BYTES + rest.length];
    ByteBuffer.wrap(answer).order(ByteOrder.nativeOrder()).putLong(number).put(rest);
    say(out, request, answer);
  }

  private void say(DataOutputStream out, int request, byte... answer) throws IOException {
    out.write(spoilt.getOrDefault(request, answer));
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

  private void await(String name) throws InterruptedException {
    synchronized (values) {
      while (!values.containsKey(name)) {
        values.wait();
      }
    }
  }

  private boolean delete(String name) {
    synchronized (values) {
      return values.remove(name) != null;
    }
  }

  private static String only(DataInputStream in) throws IOException {
    if (native64(in.readLong()) != 1) {
      throw new IOException("one name was expected");
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
