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
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * Checks that all ranks registered the same parameters and configuration. Ranks that disagree would
 * mix up gradients, or wait for each other indefinitely. Each rank describes its registration, line
 * by line, and the ranks gather digests of these descriptions. Only if digests differ is one
 * description, that of the largest group of agreeing ranks, broadcast to all. The first few ranks
 * that differ from it then broadcast their first difference, and every rank throws the same
 * exception. The data moved therefore does not grow with the product of ranks and parameters.
 */
final class ParameterConsistency {
  private static final int MAX_RANKS_SHOWN = 4;

  /** A long line is abbreviated to its beginning and its end, which contains the type. */
  private static final int LINE_BEGINNING = 160;

  private static final int LINE_END = 40;

  /** Enough for any difference: two lines of at most 3 bytes a character, and the ranks. */
  private static final int DIFFERENCE_BYTES = 2048;

  private final Communicator communicator;
  private final Stream stream;

  private ParameterConsistency(Communicator communicator, Stream stream) {
    this.communicator = communicator;
    this.stream = stream;
  }

  /**
   * Waits for the descriptions of all ranks and compares them.
   *
   * @param statement this rank's description, line by line
   * @throws IllegalArgumentException on every rank, if the descriptions differ
   */
  static void check(Communicator communicator, Stream stream, List<String> statement) {
    new ParameterConsistency(communicator, stream).check(statement);
  }

  private void check(List<String> statement) {
    byte[] own = String.join("\n", statement).getBytes(StandardCharsets.UTF_8);
    List<ByteBuffer> digests = allGather(digest(own));
    int most = mostAgreed(digests);
    int[] differing =
        IntStream.range(0, digests.size())
            .filter(rank -> !digests.get(rank).equals(digests.get(most)))
            .toArray();
    if (differing.length > 0) {
      byte[] agreed = communicator.rank() == most ? own : new byte[digests.get(most).getInt(0)];
      broadcast(agreed, most);
      throw new IllegalArgumentException(
          "the ranks registered different parameters: "
              + differences(differing, lines(own), most, lines(agreed)));
    }
  }

  /** Decodes the lines; all ranks decode, including the sender, as UTF-8 may not round-trip. */
  private static List<String> lines(byte[] statement) {
    return Arrays.asList(new String(statement, StandardCharsets.UTF_8).split("\n"));
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
      throw new IllegalStateException("every Java platform provides SHA-256", e);
    }
  }

  /** Returns the lowest rank that has the most frequent digest. */
  private static int mostAgreed(List<ByteBuffer> digests) {
    Map<ByteBuffer, Integer> ranksAgreeing = new LinkedHashMap<>();
    digests.forEach(digest -> ranksAgreeing.merge(digest, 1, Integer::sum));
    // Of equal counts, Collections.max returns the first: that of the lowest rank.
    Map.Entry<ByteBuffer, Integer> most =
        Collections.max(ranksAgreeing.entrySet(), Map.Entry.comparingByValue());
    return digests.indexOf(most.getKey());
  }

  /** All-gathers bytes; every rank passes the same number. */
  private List<ByteBuffer> allGather(byte[] own) {
    int size = communicator.size();
    byte[] all = new byte[Math.multiplyExact(size, own.length)];
    try (Buffer send = communicator.newBuffer(DataType.UINT8, own.length);
        Buffer recv = communicator.newBuffer(DataType.UINT8, all.length)) {
      send.copyFromAsync(MemorySegment.ofArray(own), stream);
      communicator.allGather(send, recv, stream);
      Reducer.await(communicator, stream);
      recv.copyTo(MemorySegment.ofArray(all), stream);
    }
    return IntStream.range(0, size)
        .mapToObj(rank -> ByteBuffer.wrap(all, rank * own.length, own.length).slice())
        .toList();
  }

  /** Broadcasts the root's bytes in place; every rank passes the same number. */
  private void broadcast(byte[] bytes, int root) {
    try (Buffer buffer = communicator.newBuffer(DataType.UINT8, bytes.length)) {
      buffer.copyFromAsync(MemorySegment.ofArray(bytes), stream);
      communicator.broadcast(buffer, root, stream);
      Reducer.await(communicator, stream);
      buffer.copyTo(MemorySegment.ofArray(bytes), stream);
    }
  }

  /** Returns how ranks differ from the rank {@code most}; each describes its own difference. */
  private String differences(
      int[] differing, List<String> statement, int most, List<String> agreed) {
    List<String> differences = new ArrayList<>();
    for (int rank : Arrays.copyOf(differing, Math.min(differing.length, MAX_RANKS_SHOWN))) {
      byte[] bytes = new byte[DIFFERENCE_BYTES];
      if (rank == communicator.rank()) {
        byte[] own = difference(rank, statement, most, agreed).getBytes(StandardCharsets.UTF_8);
        System.arraycopy(own, 0, bytes, 0, own.length);
      }
      broadcast(bytes, rank);
      differences.add(new String(bytes, StandardCharsets.UTF_8).replace("\0", ""));
    }
    if (differing.length > MAX_RANKS_SHOWN) {
      int more = differing.length - MAX_RANKS_SHOWN;
      differences.add(more == 1 ? "1 more rank differs" : more + " more ranks differ");
    }
    return String.join("; ", differences);
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

  private static String line(List<String> statement, int number) {
    if (number == statement.size()) {
      return "no more than " + (number - 1) + " parameters";
    }
    String line = statement.get(number);
    int end = line.length() - LINE_END;
    return end <= LINE_BEGINNING
        ? line
        : line.substring(0, LINE_BEGINNING) + "..." + line.substring(end);
  }
}
