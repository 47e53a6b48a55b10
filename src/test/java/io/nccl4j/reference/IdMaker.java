package io.nccl4j.reference;

import io.nccl4j.Backend;

/** A process of its own for {@link FaultsTest}: prints an id that it has made. */
public final class IdMaker {
  private IdMaker() {}

  /** Makes the id. */
  public static void main(String[] arguments) {
    try (Backend backend = Backend.reference(1)) {
      System.out.println(backend.newUniqueId().toHex());
    }
  }
}
