package io.nccl4j.reference;

import io.nccl4j.Operation;
import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.RankMap;
import io.nccl4j.internal.reference.bootstrap.Secret;
import io.nccl4j.internal.reference.rank.RankFailure;
import io.nccl4j.internal.reference.rank.RankState;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.spi.FailureDetails;
import java.io.ByteArrayInputStream;
import java.io.DataInput;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.UUID;

/** Fuzzes the content of control messages. The first byte of an input selects the decoder. */
final class MessageBodiesFuzz implements FuzzTarget {
  @FunctionalInterface
  private interface Decoder {
    void decode(DataInput in) throws IOException;
  }

  private record Body(Message.Body valid, Decoder decoder) {}

  private final List<Body> bodies = new ArrayList<>();

  MessageBodiesFuzz() {
    ProcessAddress here =
        new ProcessAddress(
            UUID.randomUUID(),
            UUID.randomUUID(),
            new InetSocketAddress(InetAddress.getLoopbackAddress(), 1),
            1,
            "host");
    BitSet ranks = new BitSet();
    ranks.set(1, 3);
    RankFailure failure =
        RankFailure.of(
            1,
            RankFailure.Kind.TIMEOUT,
            "rank 1 waited",
            FailureDetails.of("", new BitSet(), ranks).in(Operation.ALL_REDUCE, 3));
    RankMap rankMap = RankMap.of(Secret.random(), List.of(here, here));
    BootstrapKey key = new BootstrapKey(BootstrapKey.SHRINK, ranks, 7);
    bodies.add(new Body(failure::write, RankFailure::read));
    bodies.add(new Body(rankMap::write, in -> RankMap.read(in).ranksOf(0)));
    bodies.add(new Body(key::write, BootstrapKey::read));
    bodies.add(
        new Body(
            new Bootstrap.MembershipRequest(1, 0, 1, here)::write,
            Bootstrap.MembershipRequest::read));
    bodies.add(
        new Body(
            out -> new RankState(1).write(out, Presence.HERE), MessageBodiesFuzz::readRankState));
    bodies.add(new Body(out -> writeState(out, rankMap, ranks), MessageBodiesFuzz::readState));
  }

  private static void readRankState(DataInput in) throws IOException {
    RankState rankState = new RankState(1);
    rankState.read(in);
    rankState.describeCollective();
    rankState.differenceFrom(new RankState(2));
    rankState.surplus(new RankState(2));
  }

  private static void writeState(java.io.DataOutput out, RankMap rankMap, BitSet missing)
      throws IOException {
    out.writeBoolean(false);
    Message.writeBits(out, missing);
    out.writeBoolean(false);
    out.writeBoolean(true);
    out.writeInt(1);
    rankMap.write(out);
    out.writeInt(1);
    out.writeInt(0);
    out.writeInt(0);
    out.writeInt(1);
  }

  private static void readState(DataInput in) throws IOException {
    BitSet expected = new BitSet();
    expected.set(0, 2);
    new Bootstrap(BootstrapKey.SPLIT, Secret.random(), expected, null, done -> {}).applyState(in);
  }

  @Override
  public List<Sample> samples() throws IOException {
    List<Sample> samples = new ArrayList<>();
    for (int kind = 0; kind < bodies.size(); kind++) {
      Sample body = Sample.of(bodies.get(kind).valid::write);
      samples.add(Sample.of(new byte[] {(byte) kind}).followedBy(body));
    }
    return samples;
  }

  /** A rank map that claims 14 million ranks. */
  @Override
  public List<String> regressions() {
    return List.of(
        "0115f4cdb30b7a0d6c073dcad07b1ecb4c168b19724e364d720000000195a0fd9a70a34794b10e805a01af7140b8"
            + "39448d39c44f5086c897d0a553ae09047f000001000100000000000000010004686f737400d8633e");
  }

  @Override
  public void read(byte[] input) throws IOException {
    DataInputStream in = new DataInputStream(new ByteArrayInputStream(input));
    bodies.get(in.readUnsignedByte() % bodies.size()).decoder.decode(in);
  }

  /** An exception closes the connection, and its ranks are lost. */
  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(IOException.class);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 20) + 64L * inputBytes;
  }
}
