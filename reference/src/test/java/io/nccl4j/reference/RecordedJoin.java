package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/**
 * The two directions of the connection over which a rank joins by an id, recorded by a relay. The
 * relay is independent of the protocol, so it always records the current one.
 *
 * @param sent the bytes that the rank sent
 * @param answered the bytes that the process that created the id sent
 */
record RecordedJoin(Sample sent, Sample answered) {
  private static final CommunicatorConfig SOON =
      CommunicatorConfig.defaults().withTimeout(Duration.ofMillis(300));

  /** Returns an id with another address than that of the process that created it. */
  static UniqueId redirected(UniqueId id, InetSocketAddress to) {
    ReferenceId referenceId = ReferenceId.of(id);
    ProcessAddress maker = referenceId.maker();
    return new ReferenceId(
            new ProcessAddress(maker.process(), maker.host(), to, maker.pid(), maker.hostName()),
            referenceId.secret())
        .toUniqueId();
  }

  /** Records rank 1 of 2, which joins, waits for rank 0, and times out. */
  static RecordedJoin of(Backend backend, UniqueId id) throws Exception {
    ByteArrayOutputStream sent = new ByteArrayOutputStream();
    ByteArrayOutputStream answered = new ByteArrayOutputStream();
    try (ServerSocket relay = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      UniqueId relayed = redirected(id, (InetSocketAddress) relay.getLocalSocketAddress());
      FutureTask<Boolean> joining = new FutureTask<>(() -> join(backend, relayed));
      Thread.ofPlatform().daemon().name("recorded-rank").start(joining);
      try (Socket joiner = relay.accept();
          Socket maker = new Socket()) {
        maker.connect(ReferenceId.of(id).maker().address());
        FutureTask<Boolean> forth = copy(joiner, maker, sent);
        FutureTask<Boolean> back = copy(maker, joiner, answered);
        joining.get(10, TimeUnit.SECONDS);
        forth.get(10, TimeUnit.SECONDS);
        back.get(10, TimeUnit.SECONDS);
      }
    }
    return new RecordedJoin(
        Sample.opaque(sent.toByteArray()), Sample.opaque(answered.toByteArray()));
  }

  private static boolean join(Backend backend, UniqueId id) {
    try (Communicator unexpected = backend.newCommunicator(id, 2, 1, SOON)) {
      throw new AssertionError(unexpected + " needs two ranks");
    } catch (NcclException e) {
      // The rank has given up, as expected.
      return true;
    }
  }

  private static FutureTask<Boolean> copy(Socket from, Socket to, ByteArrayOutputStream record) {
    FutureTask<Boolean> copying =
        new FutureTask<>(
            () -> {
              byte[] some = new byte[4096];
              try {
                for (int n = from.getInputStream().read(some);
                    n >= 0;
                    n = from.getInputStream().read(some)) {
                  record.write(some, 0, n);
                  to.getOutputStream().write(some, 0, n);
                }
                to.shutdownOutput();
              } catch (IOException e) {
                // The other side has closed first.
                to.close();
              }
              return true;
            });
    Thread.ofPlatform().daemon().name("relay").start(copying);
    return copying;
  }
}
