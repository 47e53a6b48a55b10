package io.nccl4j.internal.rendezvous;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Optional;

/**
 * One call of one rank, which it announces under {@code rank-R}: a random token, the rank's world
 * size, round and backend, and why it has failed before it could take part, if it has.
 */
final class Attempt {
  private static final int LEAST_BYTES = 3 * Integer.BYTES;
  private static final int MAX_REASON_CHARACTERS = 1000;

  final JobRank self;
  final int round;
  final RankBackend backend;
  final Deadline deadline;
  private final String place;
  private Token token = Token.random();
  private String failure;
  private boolean announced;

  /**
   * Creates an attempt.
   *
   * @param failure why the rank cannot take part, or an empty text
   * @param place describes the store
   */
  Attempt(
      JobRank self,
      int round,
      RankBackend backend,
      String failure,
      String place,
      Deadline deadline) {
    this.self = self;
    this.round = round;
    this.backend = backend;
    this.failure = failure;
    this.place = place;
    this.deadline = deadline;
  }

  /** What an announcement says. */
  record Announcement(int size, int round, RankBackend backend, String failure) {
    /** Returns nothing if the content is too short. */
    static Optional<Announcement> of(ByteBuffer content) {
      return content.remaining() < LEAST_BYTES
          ? Optional.empty()
          : Optional.of(
              new Announcement(
                  content.getInt(),
                  content.getInt(),
                  RankBackend.ofCode(content.getInt()),
                  text(content)));
    }
  }

  static String key(int rank) {
    return "rank-" + rank;
  }

  static byte[] bytes(String reason) {
    int end = Math.min(reason.length(), MAX_REASON_CHARACTERS);
    return reason.substring(0, end).getBytes(StandardCharsets.UTF_8);
  }

  static String text(ByteBuffer rest) {
    return StandardCharsets.UTF_8.decode(rest).toString();
  }

  /** Returns the token of the current announcement. */
  Token token() {
    return token;
  }

  /** Returns why this rank cannot take part; empty if it can. */
  String failure() {
    return failure;
  }

  /**
   * Announces this attempt if it is not announced: an earlier run, or a restart of the store, may
   * have removed the value. If another process has replaced it, this attempt has failed; then it is
   * announced once more, so that all ranks hear of it.
   */
  void keepAnnounced(SealedStore in) throws IOException {
    Optional<SealedStore.Value> own = in.get(key(self.rank()));
    boolean replaced = announced && own.isPresent() && !own.get().token().equals(token);
    if (replaced && failure.isEmpty()) {
      failure =
          "two processes take part as rank "
              + self.rank()
              + " in "
              + place
              + ". Start each rank once; two runs in one place need different job ids";
      // Rank 0 may have read the announcement with the former token.
      token = Token.random();
      announced = false;
    }
    if (own.isEmpty() || !announced) {
      byte[] reason = bytes(failure);
      ByteBuffer content = ByteBuffer.allocate(LEAST_BYTES + reason.length);
      content.putInt(self.size()).putInt(round).putInt(backend.code()).put(reason);
      in.set(key(self.rank()), token, Token.NONE, content.array());
      announced = true;
    }
  }

  /** Removes the announcement, unless another process has replaced it. */
  void withdraw(SealedStore from) throws IOException {
    if (from.get(key(self.rank())).filter(own -> own.token().equals(token)).isPresent()) {
      from.delete(key(self.rank()));
    }
  }

  NcclTimeoutException timedOut(String text) {
    return new NcclTimeoutException("Rendezvous.exchange", deadline.timeout(), text);
  }
}
