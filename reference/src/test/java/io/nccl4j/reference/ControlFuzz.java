package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Operation;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapFailure;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.RankMap;
import io.nccl4j.internal.reference.bootstrap.Secret;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.rank.RankFailure;
import io.nccl4j.internal.reference.rank.RankState;
import io.nccl4j.internal.reference.rank.RemoteProcess;
import io.nccl4j.internal.reference.transport.LinkKey;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SharedMemoryFiles;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.FailureDetails;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Fuzzes the control messages of a process of a communicator, which knows its secret. Two ranks are
 * connected as if in two processes, and one of them sends invalid messages.
 */
final class ControlFuzz implements FuzzTarget {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));
  private static final long ANSWER_NANOS = Duration.ofMillis(50).toNanos();
  private static final long NOTICE_NANOS = Duration.ofSeconds(20).toNanos();
  // Accepted inputs change the communicator; a new one now and then reveals other defects.
  private static final int MAX_INPUTS = 100;

  private final Backend backend =
      ReferenceBackend.openAsProcesses(2, 2, ReferenceOptions.defaults());
  private final ExecutorService ranks = Executors.newFixedThreadPool(2);
  private final LoggedErrors errors = new LoggedErrors();
  private final List<Communicator> connected = new ArrayList<>();
  private int inputs;

  private void connect() throws Exception {
    UniqueId id = backend.newUniqueId();
    List<Future<Communicator>> joining = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      int self = rank;
      joining.add(ranks.submit(() -> backend.newCommunicator(id, 2, self, CONFIG)));
    }
    for (Future<Communicator> each : joining) {
      connected.add(each.get());
    }
    inputs = 0;
  }

  private CommunicatorState state(int rank) {
    return ((ReferenceCommunicator) Contract.get().driver(connected.get(rank)))
        .hostedRank()
        .communicator();
  }

  private void disconnect() {
    connected.forEach(Communicator::abort);
    connected.forEach(Communicator::close);
    connected.clear();
  }

  @Override
  public List<Sample> samples() throws Exception {
    if (connected.isEmpty()) {
      connect();
    }
    ProcessAddress here = state(0).rankMap().processes().getFirst();
    BitSet one = new BitSet();
    one.set(1);
    RankFailure failure =
        RankFailure.of(
            1,
            RankFailure.Kind.TIMEOUT,
            "rank 1 waited",
            FailureDetails.of("", new BitSet(), one).in(Operation.ALL_REDUCE, 3));
    BootstrapKey split = new BootstrapKey(BootstrapKey.SPLIT, new BitSet(), 0);
    BootstrapKey shrink = new BootstrapKey(BootstrapKey.SHRINK, one, 0);
    BootstrapKey grow = new BootstrapKey(BootstrapKey.GROW, new BitSet(), 0);
    RankMap rankMap = RankMap.of(Secret.random(), List.of(here, here));
    Path memory =
        Path.of(
            System.getProperty("java.io.tmpdir"),
            SharedMemoryFiles.name(SharedMemoryFiles.ofThisProcess(), new byte[16]));
    LinkKey link = new LinkKey(Route.EXCHANGE, 0, 1, 0);
    List<Sample> samples = new ArrayList<>();
    samples.add(
        message(
            Message.Kind.PRESENCE,
            out -> {
              out.writeInt(1);
              link.write(out);
              out.writeLong(3);
              out.writeInt(1);
              new RankState(1).write(out, Presence.CLOSED);
            }));
    samples.add(message(Message.Kind.FAILURE, failure::write));
    samples.add(message(Message.Kind.STATUS_REQUEST, out -> {}));
    samples.add(
        message(
            Message.Kind.STATUS,
            out -> {
              out.writeInt(1);
              out.writeInt(0);
              out.writeInt(1);
              new RankState(1).write(out, Presence.HERE);
            }));
    samples.add(
        message(
            Message.Kind.MEMORY,
            out -> {
              link.write(out);
              out.writeUTF(memory.toString());
            }));
    samples.add(
        message(
            Message.Kind.MEMORY_REFUSED,
            out -> {
              new LinkKey(Route.RING, 0, 0, 1).write(out);
              out.writeUTF("no space");
            }));
    for (BootstrapKey key : List.of(split, shrink, grow)) {
      int expected = key.equals(grow) ? 3 : 2;
      samples.add(meet(key, expected, new Bootstrap.MembershipRequest(1, 0, 1, here)));
      samples.add(
          message(
              Message.Kind.BOOTSTRAP_STATE,
              out -> {
                key.write(out);
                out.writeInt(expected);
                out.writeBoolean(false);
                Message.writeBits(out, one);
                Message.writeBits(out, new BitSet());
                out.writeBoolean(false);
                out.writeBoolean(true);
                out.writeInt(1);
                rankMap.write(out);
                out.writeInt(1);
                out.writeInt(0);
                out.writeInt(0);
                out.writeInt(1);
              }));
      samples.add(
          message(
              Message.Kind.REJECTED,
              out -> {
                key.write(out);
                out.writeInt(expected);
                out.writeInt(1);
                out.writeUTF("refused");
              }));
      samples.add(
          message(
              Message.Kind.CONNECTED,
              out -> {
                key.write(out);
                out.writeInt(expected);
                out.writeInt(1);
              }));
      samples.add(
          message(
              Message.Kind.BOOTSTRAP_QUERY,
              out -> {
                key.write(out);
                out.writeInt(expected);
              }));
      samples.add(
          message(
              Message.Kind.GIVE_UP,
              out -> {
                key.write(out);
                out.writeInt(expected);
                BootstrapFailure.of("gave up", one).write(out);
              }));
    }
    samples.addAll(violations(here, grow));
    return samples;
  }

  /** Regressions: messages that caused an error in the process that received them. */
  private static List<Sample> violations(ProcessAddress here, BootstrapKey grow)
      throws IOException {
    return List.of(
        meet(grow, 2, new Bootstrap.MembershipRequest(1, 0, 1, here)),
        meet(grow, Integer.MAX_VALUE, new Bootstrap.MembershipRequest(1, 0, 1, here)),
        meet(
            new BootstrapKey(BootstrapKey.SPLIT, new BitSet(), 0),
            2,
            new Bootstrap.MembershipRequest(-1, 0, 1, here)),
        message(
            Message.Kind.REJECTED,
            out -> {
              grow.write(out);
              out.writeInt(2);
              out.writeInt(1);
              out.writeUTF("refused");
            }),
        message(
            Message.Kind.MEMORY,
            out -> {
              new LinkKey(Route.EXCHANGE, 0, 1, 0).write(out);
              out.writeUTF("\0");
            }),
        message(
            Message.Kind.MEMORY,
            out -> {
              new LinkKey(Route.EXCHANGE, 0, 1, 0).write(out);
              out.writeUTF("/");
            }));
  }

  private static Sample meet(BootstrapKey key, int expected, Bootstrap.MembershipRequest request)
      throws IOException {
    return message(
        Message.Kind.MEMBERSHIP_REQUEST,
        out -> {
          key.write(out);
          out.writeInt(expected);
          request.write(out);
        });
  }

  private static Sample message(Message.Kind kind, Message.Body body) throws IOException {
    byte[] header = Arrays.copyOf(Message.of(kind, body).array(), Message.HEADER_BYTES);
    return Sample.of(header, 4, 4, 4).followedBy(Sample.of(body::write));
  }

  @Override
  public void read(byte[] input) throws Exception {
    if (connected.isEmpty()) {
      connect();
    }
    int sender = Fuzzer.random(input).nextInt(2);
    CommunicatorState attacked = state(1 - sender);
    RemoteProcess attacker = state(sender).remoteProcess(1 - sender);
    // Padded to a whole header, which the sending connection may read.
    attacker.send(
        ByteBuffer.wrap(Arrays.copyOf(input, Math.max(input.length, Message.HEADER_BYTES))));
    // An answer shows that the input was read, unless the request became part of a message.
    attacker.requestStatus();
    if (!awaitAnswer(attacker, ANSWER_NANOS)) {
      attacker.end();
      awaitLoss(attacked.rankState(sender));
    }
    inputs++;
    boolean replace =
        inputs >= MAX_INPUTS || attacked.failureSignalled() || state(sender).failureSignalled();
    if (replace) {
      disconnect();
    }
    errors.check();
  }

  private static boolean awaitAnswer(RemoteProcess attacker, long nanos) {
    long end = System.nanoTime() + nanos;
    while (attacker.silent(0)) {
      if (System.nanoTime() > end) {
        return false;
      }
      Thread.onSpinWait();
    }
    return true;
  }

  private static void awaitLoss(RankState peer) throws InterruptedException {
    long end = System.nanoTime() + NOTICE_NANOS;
    while (!peer.presence().left()) {
      if (System.nanoTime() > end) {
        throw new AssertionError("the end of a connection inside a message was not noticed");
      }
      Thread.sleep(1);
    }
  }

  /** Checks that the processes can still communicate. */
  @Override
  public void check() throws Exception {
    disconnect();
    connect();
    RemoteProcess process = state(0).remoteProcess(1);
    process.requestStatus();
    if (!awaitAnswer(process, NOTICE_NANOS)) {
      throw new AssertionError("a process does not answer any more");
    }
    errors.check();
  }

  /** A message that violates the protocol closes the connection; nothing is thrown here. */
  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of();
  }

  /** A message may announce 16 MiB, which is more than any needs. */
  @Override
  public long maxAllocated(int inputBytes) {
    return (20L << 20) + 64L * inputBytes;
  }

  @Override
  public boolean usesOtherThreads() {
    return true;
  }

  @Override
  public void close() {
    disconnect();
    ranks.shutdownNow();
    errors.close();
  }
}
