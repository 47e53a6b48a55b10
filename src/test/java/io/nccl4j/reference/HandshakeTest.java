package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** What somebody between two processes can learn and do. */
class HandshakeTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));
  private static final CommunicatorConfig SOON =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(2));

  private final List<Site> places = List.of(new Site(), new Site());
  private final ReferenceBackend backend =
      SeparateSites.open(2, ReferenceOptions.defaults(), places);

  @Test
  void joinDoesNotShowTheSecret() throws Exception {
    UniqueId made = backend.newUniqueId();
    try (Relay relay = new Relay(made)) {
      UniqueId id = relay.redirect(made);
      relay.passOn();
      FutureTask<Integer> first = connect(id, 0, CONFIG);
      FutureTask<Integer> second = connect(id, 1, CONFIG);
      assertEquals(2, first.get(30, TimeUnit.SECONDS));
      assertEquals(2, second.get(30, TimeUnit.SECONDS));
      String heard = HexFormat.of().formatHex(relay.heard());
      assertFalse(heard.isEmpty());
      for (String half : halves(ReferenceId.of(id).secret())) {
        assertFalse(heard.contains(half), "the secret was sent in clear");
      }
      assertFalse(heard.contains(id.toHex()), "the id was sent in clear");
    }
  }

  private static List<String> halves(Secret secret) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    secret.write(new DataOutputStream(bytes));
    byte[] whole = bytes.toByteArray();
    return List.of(
        HexFormat.of().formatHex(Arrays.copyOf(whole, 8)),
        HexFormat.of().formatHex(Arrays.copyOfRange(whole, 8, 16)));
  }

  @Test
  void joinThatIsRelayedOverAnotherConnectionIsRefused() throws Exception {
    UniqueId made = backend.newUniqueId();
    try (Relay relay = new Relay(made)) {
      UniqueId id = relay.redirect(made);
      try (Socket relayed = relay.crossOver()) {
        FutureTask<Integer> first = connect(id, 0, SOON);
        FutureTask<Integer> second = connect(id, 1, SOON);
        NcclTimeoutException alone = failure(NcclTimeoutException.class, first);
        assertTrue(alone.getMessage().contains("rank 1 of 2 did not come"), alone::toString);
        failure(NcclException.class, second);
        relayed.setSoTimeout(10_000);
        assertTrue(relayed.getInputStream().readAllBytes().length < 100, "nothing was answered");
      }
    }
  }

  private FutureTask<Integer> connect(UniqueId id, int rank, CommunicatorConfig config) {
    FutureTask<Integer> task =
        new FutureTask<>(
            () -> {
              try (Communicator comm = backend.communicator(id, 2, rank, config)) {
                return comm.size();
              }
            });
    Thread.ofPlatform().daemon().name("rank-" + rank).start(task);
    return task;
  }

  private static <E extends Throwable> E failure(Class<E> type, FutureTask<?> task)
      throws Exception {
    try {
      throw new AssertionError("expected a failure, but got " + task.get(30, TimeUnit.SECONDS));
    } catch (ExecutionException e) {
      return type.cast(e.getCause());
    }
  }
}
