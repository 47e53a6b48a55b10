package io.nccl4j.rendezvous;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.rendezvous.file.RoundDirectory;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.random.RandomGenerator;

/**
 * Fuzzes the files of a rendezvous. Half of the inputs get a correct digest after mutation, as if
 * written by another version of the format.
 */
final class RoundDirectoryFuzz implements FuzzTarget {
  private static final int DIGEST_BYTES = 32;

  private final Path folder;

  RoundDirectoryFuzz() throws IOException {
    folder = Files.createTempDirectory("nccl4j-fuzz");
  }

  private RoundDirectory files(int rank) {
    return new RoundDirectory(folder, RankInfo.of(rank, 3).jobRank(), 1);
  }

  @Override
  public List<Sample> samples() throws Exception {
    RoundDirectory zero = files(0);
    zero.write(
        new RoundDirectory.Publication(
            Token.random(),
            RendezvousFuzzTest.id(),
            Optional.of(new RankBackend.Mismatch(1, RankBackend.NCCL, RankBackend.REFERENCE)),
            List.of(Token.random(), Token.random())));
    RoundDirectory one = files(1);
    one.write(new RoundDirectory.Announcement(Token.random(), Token.NONE, RankBackend.NCCL));
    return List.of(
        Sample.of(
            Files.readAllBytes(zero.idFile()), 8, 4, 4, 4, 4, 4, 8, 8, 128, 4, 4, 4, 8, 8, 8, 8),
        Sample.of(Files.readAllBytes(one.rankFile(1)), 8, 4, 4, 4, 4, 4, 8, 8, 8, 8, 4));
  }

  @Override
  public void read(byte[] input) throws Exception {
    RandomGenerator random = Fuzzer.random(input);
    RoundDirectory reader = files(2);
    Path file = random.nextBoolean() ? reader.idFile() : reader.rankFile(1);
    Files.deleteIfExists(file);
    if (random.nextInt(50) == 0) {
      Files.createSymbolicLink(file, Path.of("/dev/zero"));
    } else {
      Files.write(file, random.nextBoolean() ? withDigest(input) : input);
    }
    reader.publication();
    reader.announcement(1);
    Files.delete(file);
  }

  private static byte[] withDigest(byte[] input) {
    if (input.length < DIGEST_BYTES) {
      return input;
    }
    byte[] body = Arrays.copyOf(input, input.length - DIGEST_BYTES);
    byte[] whole = Arrays.copyOf(body, input.length);
    System.arraycopy(SessionKeys.sha256(body), 0, whole, body.length, DIGEST_BYTES);
    return whole;
  }

  /** Any damaged file counts as absent. */
  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of();
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 16) + 8L * inputBytes;
  }

  @Override
  public void close() throws IOException {
    files(0).sweep();
    Files.delete(folder);
  }
}
