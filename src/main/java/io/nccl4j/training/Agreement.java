package io.nccl4j.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Makes sure that all ranks mean the same before they reduce anything: ranks that disagree would
 * mix up gradients, or wait for each other for ever. Each rank states what it registered, line by
 * line. Digests of the statements go round first, the statements only where those differ; then
 * every rank finds the same difference and throws the same exception.
 */
final class Agreement {
  private static final int MOST_RANKS_TOLD = 4;

  private final Communicator communicator;
  private final Stream stream;

  private Agreement(Communicator communicator, Stream stream) {
    this.communicator = communicator;
    this.stream = stream;
  }

  /**
   * Waits until all ranks have stated what they have.
   *
   * @param statement what this rank has, line by line
   * @throws IllegalArgumentException on every rank, if they do not all state the same
   */
  static void check(Communicator communicator, Stream stream, List<String> statement) {
    new Agreement(communicator, stream).check(statement);
  }

  private void check(List<String> statement) {
    byte[] mine = String.join("\n", statement).getBytes(StandardCharsets.UTF_8);
    List<byte[]> digests = gathered(digest(mine));
    if (digests.stream().allMatch(other -> Arrays.equals(other, digests.getFirst()))) {
      return;
    }
    int longest =
        digests.stream().mapToInt(digest -> ByteBuffer.wrap(digest).getInt()).max().orElseThrow();
    List<byte[]> statements = gathered(Arrays.copyOf(mine, longest));
    throw new IllegalArgumentException(
        "the ranks registered different parameters: "
            + differences(
                statements.stream()
                    .map(told -> new String(told, StandardCharsets.UTF_8).replace("\0", ""))
                    .map(told -> Arrays.asList(told.split("\n")))
                    .toList()));
  }

  /** Returns the length of a statement, as four bytes, and a digest of it. */
  private static byte[] digest(byte[] statement) {
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(statement);
      return ByteBuffer.allocate(Integer.BYTES + digest.length)
          .putInt(statement.length)
          .put(digest)
          .array();
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every Java platform has SHA-256", e);
    }
  }

  /** Gives every rank each rank's bytes, of which all have as many. */
  private List<byte[]> gathered(byte[] mine) {
    int size = communicator.size();
    byte[] all = new byte[Math.multiplyExact(size, mine.length)];
    try (Buffer send = communicator.allocate(DataType.UINT8, mine.length);
        Buffer recv = communicator.allocate(DataType.UINT8, all.length)) {
      send.copyFrom(MemorySegment.ofArray(mine), stream);
      communicator.allGather(send, recv, stream);
      stream.synchronize(communicator.config().timeout());
      recv.copyTo(MemorySegment.ofArray(all), stream);
    }
    List<byte[]> parts = new ArrayList<>();
    for (int rank = 0; rank < size; rank++) {
      parts.add(Arrays.copyOfRange(all, rank * mine.length, (rank + 1) * mine.length));
    }
    return parts;
  }

  /** Returns what sets ranks apart from the rank that most agree with. */
  private static String differences(List<List<String>> statements) {
    int most = mostAgreed(statements);
    List<String> told = new ArrayList<>();
    int differing = 0;
    for (int rank = 0; rank < statements.size(); rank++) {
      if (!statements.get(rank).equals(statements.get(most)) && ++differing <= MOST_RANKS_TOLD) {
        told.add(difference(rank, statements.get(rank), most, statements.get(most)));
      }
    }
    if (differing > MOST_RANKS_TOLD) {
      told.add(differing - MOST_RANKS_TOLD + " more ranks differ");
    }
    return String.join("; ", told);
  }

  /** Returns the lowest rank whose statement no other has more ranks for. */
  private static int mostAgreed(List<List<String>> statements) {
    Map<Integer, Integer> ranksAgreeing = new TreeMap<>();
    statements.forEach(
        statement -> ranksAgreeing.merge(statements.indexOf(statement), 1, Integer::sum));
    return ranksAgreeing.entrySet().stream()
        .reduce((one, other) -> other.getValue() > one.getValue() ? other : one)
        .orElseThrow()
        .getKey();
  }

  private static String difference(
      int rank, List<String> statement, int other, List<String> otherStatement) {
    int line = 0;
    while (line < statement.size()
        && line < otherStatement.size()
        && statement.get(line).equals(otherStatement.get(line))) {
      line++;
    }
    return "rank %d has %s, rank %d has %s"
        .formatted(rank, line(statement, line), other, line(otherStatement, line));
  }

  private static String line(List<String> statement, int line) {
    return line < statement.size()
        ? statement.get(line)
        : "no more than " + (statement.size() - 1) + " parameters";
  }
}
