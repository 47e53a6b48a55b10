package io.nccl4j.internal.rendezvous;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.random.RandomGenerator;

/**
 * Fuzzes what ranks read from a store: rank 0 an announcement, or rank 1 an answer. Half of the
 * inputs are sealed as by a rank of the run, which confirms every answer.
 */
final class StoreValuesFuzz implements FuzzTarget {
  private static final Duration TIMEOUT = Duration.ofSeconds(20);

  /** Enough to read an announcement, answer it and read its receipt. */
  private static final int POLLS = 4;

  /** The values of one input, and what the other rank makes of each new one. */
  private static final class Values implements Store {
    private final Map<String, byte[]> byKey = new HashMap<>();
    private final SealedStore sealed = new SealedStore(this, RendezvousFuzzTest.SECRET, "");
    private final byte[] answer;
    private int polls;

    private Values(byte[] answer) {
      this.answer = answer;
    }

    @Override
    public void set(String key, byte[] value) throws IOException {
      byKey.put(key, value);
      if (key.endsWith("answer-1") && answer.length == 0) {
        Token token = sealed.get("answer-1").orElseThrow().token();
        sealed.set("receipt-1", Token.random(), token, new byte[0]);
      } else if (key.endsWith("rank-1") && answer.length > 0) {
        Token token = sealed.get("rank-1").orElseThrow().token();
        sealed.set("answer-1", Token.random(), token, answer);
      }
    }

    @Override
    public byte[] get(String key) {
      return byKey.getOrDefault(key, new byte[0]);
    }

    @Override
    public void delete(String key) {
      byKey.remove(key);
    }

    /** Ends the exchange as a closed rendezvous does, after some polls. */
    private void checkStillOpen() {
      if (++polls > POLLS) {
        throw new IllegalStateException("closed");
      }
    }

    @Override
    public void close() {}
  }

  @Override
  public List<Sample> samples() throws Exception {
    byte[] reason = "a reason".getBytes(StandardCharsets.UTF_8);
    Values values = new Values(new byte[0]);
    values.sealed.set("rank-1", Token.random(), Token.NONE, reason);
    String key = values.byKey.keySet().iterator().next();
    return List.of(
        Sample.of(values.get(key), 4, 8, 8, 8, 8),
        Sample.of(
            out -> {
              out.writeInt(2);
              out.writeInt(1);
              out.writeInt(RankBackend.NCCL.code());
              out.write(reason);
            }),
        Sample.of(
            out -> {
              out.writeByte(Leader.ID);
              out.write(RendezvousFuzzTest.id().toBytes());
            }),
        Sample.of(
            out -> {
              out.writeByte(Leader.ID + 1);
              out.write(reason);
            }));
  }

  @Override
  public void read(byte[] input) throws Exception {
    RandomGenerator random = Fuzzer.random(input);
    int rank = random.nextInt(2);
    Values values = new Values(rank == 1 ? input : new byte[0]);
    if (rank == 0 && random.nextBoolean()) {
      values.sealed.set("rank-1", Token.random(), Token.NONE, input);
    } else {
      String prefix = "nccl4j-" + Token.ofText("").toHex();
      values.byKey.put(prefix + (rank == 0 ? "-rank-1" : "-answer-1"), input);
    }
    new StoreExchange(
            new JobRank(rank, 2, ""),
            RendezvousFuzzTest.SECRET,
            "memory",
            () -> values,
            false,
            values::checkStillOpen)
        .exchange(
            1,
            RankBackend.NCCL,
            () -> rank == 0 ? RendezvousFuzzTest.id() : null,
            Deadline.after(TIMEOUT));
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(ExchangeFailedException.class, IllegalStateException.class);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    // Rank 0 asks for the values of up to 1,024 ranks if one claims such a world size.
    return (1 << 22) + 64L * inputBytes;
  }
}
