package io.nccl4j.reference;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.RankMap;
import io.nccl4j.internal.reference.bootstrap.Secret;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.transport.LinkKey;
import io.nccl4j.internal.reference.transport.ProtocolViolationException;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.TcpFrame;
import io.nccl4j.internal.reference.transport.TcpReceiveLink;
import io.nccl4j.schedule.Layout;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.List;

/** Fuzzes the slices that a TCP link receives, as the worker of a rank reads them. */
final class TcpFramesFuzz implements FuzzTarget {
  private static final int SLICE_BYTES = 512;
  private static final ReferenceOptions OPTIONS =
      ReferenceOptions.defaults()
          .withTransport(Transport.TCP)
          .withLayout(Layout.defaults().withSliceBytes(SLICE_BYTES));

  private final ServerSocketChannel listener;

  TcpFramesFuzz() throws IOException {
    listener = ServerSocketChannel.open();
    listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
  }

  @Override
  public List<Sample> samples() {
    Sample three = frame(0, 100).followedBy(frame(1, 0)).followedBy(frame(2, SLICE_BYTES));
    return List.of(three, frame(0, SLICE_BYTES));
  }

  private static Sample frame(long number, int bytes) {
    ByteBuffer frame = ByteBuffer.allocate(TcpFrame.size(bytes)).order(ByteOrder.nativeOrder());
    TcpFrame.write(frame, 0, bytes, number, 42);
    return Sample.of(frame.array(), 4, 4, 8, 8, 8);
  }

  @Override
  public void read(byte[] input) throws IOException {
    ProcessEndpoint here = new ProcessEndpoint();
    RankMap rankMap =
        RankMap.of(Secret.random(), List.of(here.address(), new ProcessEndpoint().address()));
    CommunicatorState communicator = new CommunicatorState(here, rankMap, OPTIONS.forRanks());
    TcpReceiveLink link = communicator.links().arriving(new LinkKey(Route.EXCHANGE, 0, 1, 0));
    try (SocketChannel sender = SocketChannel.open(listener.getLocalAddress());
        SocketChannel receiver = listener.accept()) {
      receiver.configureBlocking(false);
      link.offer();
      link.connected(receiver);
      ByteBuffer left = ByteBuffer.wrap(input);
      sender.configureBlocking(false);
      // The receiver has limited buffers, so both sides take turns.
      for (int idle = 0; idle < 3; ) {
        int sent = left.hasRemaining() ? sender.write(left) : 0;
        int received = receive(link);
        idle = sent + received == 0 ? idle + 1 : 0;
      }
    } finally {
      link.close();
    }
  }

  /** Receives the available slices, and returns their number. */
  private static int receive(TcpReceiveLink link) {
    int slices = 0;
    while (link.ready()) {
      if (link.bytes() < 0 || link.bytes() > SLICE_BYTES) {
        throw new AssertionError("a slice of " + link.bytes() + " bytes");
      }
      link.memory().asSlice(link.offset(), link.bytes()).fill((byte) link.signature());
      link.release();
      slices++;
    }
    return slices;
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(ProtocolViolationException.class);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 17) + 4L * inputBytes;
  }

  @Override
  public void close() throws IOException {
    listener.close();
  }
}
