package io.nccl4j.internal.rendezvous;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import io.nccl4j.rendezvous.RendezvousException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Fuzzes the texts that rank 1 of 2 receives from a framework's all-gather. */
final class GatherFuzz implements FuzzTarget {
  @Override
  public List<Sample> samples() {
    List<Sample> samples = new ArrayList<>();
    Rendezvous zero =
        Rendezvous.allGather(
            RankInfo.of(0, 2),
            text -> {
              samples.add(Sample.text(text + "\0nccl4j rank 1 of 2 round 1 waits 0"));
              return List.of(text, "nccl4j rank 1 of 2 round 1 waits 0");
            });
    zero.exchange(RendezvousFuzzTest::id);
    samples.add(
        Sample.text(
            "nccl4j rank 0 of 2 round 1 failed 0 for a reason\0nccl4j rank 1 of 2 round 1 waits 0"));
    return samples;
  }

  @Override
  public void read(byte[] input) {
    String[] texts = new String(input, StandardCharsets.UTF_8).split("\0", -1);
    List<String> gathered = new ArrayList<>(List.of(texts));
    Collections.replaceAll(gathered, "", null);
    Rendezvous.allGather(RankInfo.of(1, 2), text -> gathered).exchange(RendezvousFuzzTest::id);
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(RendezvousException.class);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 16) + 64L * inputBytes;
  }
}
