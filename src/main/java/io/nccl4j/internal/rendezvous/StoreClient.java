package io.nccl4j.internal.rendezvous;

import io.nccl4j.internal.auth.SharedSecret;
import java.io.IOException;
import java.net.ProtocolException;

/** The connection of a rank to the {@link StoreServer} of rank 0. */
public final class StoreClient extends TorchStore {
  private static final String OTHER_VERSION = "rank 0 uses another version of nccl4j";

  private final JobRank self;
  private final SharedSecret secret;

  /** Creates a connection of one rank that is not open yet. */
  public StoreClient(String host, int port, JobRank self, SharedSecret secret, String place) {
    super(host, port, place);
    this.self = self;
    this.secret = secret;
  }

  @Override
  void greet() throws IOException {
    byte[] greeting = read(Handshake.GREETING_BYTES);
    if (!Handshake.hasMagic(greeting)) {
      // Retried: rank 0 may soon replace the other service.
      throw new IOException("the server is not nccl4j");
    }
    if (!Handshake.hasVersion(greeting)) {
      throw new ProtocolException(OTHER_VERSION);
    }
    write(Handshake.claim(greeting, secret, Token.ofText(self.jobId()), self.rank()));
    switch (read(1)[0]) {
      case Handshake.ADMITTED -> {}
      case Handshake.WRONG_VERSION -> throw new ProtocolException(OTHER_VERSION);
      case Handshake.WRONG_SECRET ->
          throw new ProtocolException(
              "rank "
                  + self.rank()
                  + " does not know the secret of rank 0; check that "
                  + SharedSecret.VARIABLE
                  + " is the same on all ranks");
      case Handshake.OTHER_RUN ->
          throw new IOException("rank 0 there belongs to another run, with another job id");
      default -> throw new IOException("the server is not nccl4j");
    }
  }
}
