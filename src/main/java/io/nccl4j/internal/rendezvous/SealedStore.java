package io.nccl4j.internal.rendezvous;

import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import javax.crypto.AEADBadTagException;
import org.apache.logging.log4j.Logger;

/**
 * The values of one run in a {@link Store}. Each is sealed with the run's secret under a key that
 * depends on the name of the value and on the tokens in it, so that it is invalid in any other
 * place. A run without a secret uses a well-known one, which only detects damage.
 */
final class SealedStore {
  private static final Logger LOG = Loggers.of(SealedStore.class);

  private static final int VERSION = 3;
  private static final int HEADER_BYTES = Integer.BYTES + 2 * Token.BYTES;

  private final Store store;
  private final SharedSecret secret;
  private final String prefix;

  SealedStore(Store store, SharedSecret secret, String jobId) {
    this.store = store;
    this.secret = secret;
    this.prefix = "nccl4j-" + Token.ofText(jobId).toHex() + "-";
  }

  /** A value; {@link #open} checks its seal. */
  static final class Value {
    private final String key;
    private final Token token;
    private final Token answered;
    private final byte[] content;

    private Value(String key, Token token, Token answered, byte[] content) {
      this.key = key;
      this.token = token;
      this.answered = answered;
      this.content = content;
    }

    /** Returns the token that identifies this value. */
    Token token() {
      return token;
    }

    /** Returns the token of the value that this one answers, or {@link Token#NONE}. */
    Token answered() {
      return answered;
    }

    private byte[] context() {
      String text = key + " " + token.toHex() + " " + answered.toHex();
      return text.getBytes(StandardCharsets.US_ASCII);
    }
  }

  /** Returns whether a key has a value, of any version or process. */
  boolean has(String name) throws IOException {
    return store.get(prefix + name).length > 0;
  }

  /** Returns a value, or nothing if there is none that this version has written. */
  Optional<Value> get(String name) throws IOException {
    String key = prefix + name;
    byte[] bytes = store.get(key);
    ByteBuffer in = ByteBuffer.wrap(bytes);
    if (bytes.length < HEADER_BYTES || in.getInt() != VERSION) {
      return Optional.empty();
    }
    Token token = Token.read(in);
    Token answered = Token.read(in);
    byte[] sealed = Arrays.copyOfRange(bytes, HEADER_BYTES, bytes.length);
    return Optional.of(new Value(key, token, answered, sealed));
  }

  /** Returns the content of a value, or nothing if it is not sealed with the secret. */
  Optional<ByteBuffer> open(Value value) {
    byte[] context = value.context();
    try {
      return Optional.of(ByteBuffer.wrap(secret.cipher(context).open(value.content, context)));
    } catch (AEADBadTagException e) {
      LOG.debug("{} is not sealed with the secret: {}", value.key, e.toString());
      return Optional.empty();
    }
  }

  void set(String name, Token token, Token answered, byte[] content) throws IOException {
    Value value = new Value(prefix + name, token, answered, content);
    byte[] context = value.context();
    byte[] sealed = secret.cipher(context).seal(content, context);
    ByteBuffer bytes = ByteBuffer.allocate(HEADER_BYTES + sealed.length).putInt(VERSION);
    token.write(bytes);
    answered.write(bytes);
    store.set(value.key, bytes.put(sealed).array());
  }

  /** Returns what else was noticed, for the message of a failure. */
  String report() {
    return store.report();
  }

  /** Returns the processes that claimed a rank but do not know the secret, by that rank. */
  Map<Integer, String> impostors() {
    return store.impostors();
  }

  void delete(String name) throws IOException {
    store.delete(prefix + name);
  }
}
