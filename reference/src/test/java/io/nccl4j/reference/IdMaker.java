package io.nccl4j.reference;

import io.nccl4j.Backend;

/** The main class of a process for {@link JoinFaultsTest}: prints an id that it has created. */
public final class IdMaker {
  private IdMaker() {}

  /** Prints the id. */
  public static void main(String[] arguments) {
    try (Backend backend = Backend.reference(1)) {
      System.out.println(backend.newUniqueId().toHex());
    }
  }
}
