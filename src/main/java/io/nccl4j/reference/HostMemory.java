package io.nccl4j.reference;

import java.lang.foreign.Arena;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * What the ranks of a world share of their host's memory, where all are on one: had when it is
 * first asked for, given back when the world ends.
 *
 * <p>The name that the processes find it by tells nothing of the secret that it is made of, and
 * nobody who does not know that can tell the name before.
 */
final class HostMemory {
  private final World world;
  private final boolean shared;
  private Arena arena;
  private SharedBoard board;
  private boolean ended;

  HostMemory(World world) {
    this.world = world;
    long hosts = world.plan().processes().stream().map(Location::host).distinct().count();
    this.shared = hosts == 1 && world.options().links() == Links.AUTO;
  }

  /** Returns whether all ranks can share memory, and may. */
  boolean isShared() {
    return shared;
  }

  /** Returns the board of all ranks; null while the process of rank 0 has not made it. */
  synchronized SharedBoard board() {
    if (board == null && !ended) {
      if (arena == null) {
        // Streams' threads use it, and whichever thread closes the last rank gives it back.
        arena = Arena.ofShared();
      }
      int processes = world.plan().processes().size();
      board =
          makes()
              ? SharedBoard.create(name(), world.size(), processes, arena)
              : SharedBoard.open(name(), world.size(), processes, 0, arena);
    }
    return board;
  }

  private boolean makes() {
    return world.remote(0) == null;
  }

  private String name() {
    Secret secret = world.plan().secret();
    ByteBuffer bytes = ByteBuffer.allocate(3 * Long.BYTES + 5);
    bytes.putLong(secret.high()).putLong(secret.low()).putLong(world.id());
    bytes.put("board".getBytes(StandardCharsets.US_ASCII));
    try {
      byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes.array());
      return "nccl4j-" + HexFormat.of().formatHex(Arrays.copyOf(digest, 16));
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError("every Java has SHA-256", e);
    }
  }

  /** Gives the memory back; a thread that still uses it gets an exception. Idempotent. */
  synchronized void end() {
    if (ended) {
      return;
    }
    ended = true;
    if (board != null && makes()) {
      SharedBoard.discard(name(), world.size());
    }
    if (arena != null) {
      arena.close();
    }
  }
}
