package io.nccl4j.spi;

import io.nccl4j.Backend;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.Platform;
import io.nccl4j.Stream;
import java.util.function.Function;

/**
 * What the contract does for the public classes of its backends and hides from programs: putting
 * its own objects in front of drivers, and finding the driver behind one.
 */
public abstract class Contract {
  private static volatile Contract instance;

  /** Makes the one implementation. */
  protected Contract() {}

  /** Returns the contract. */
  public static Contract get() {
    if (instance == null) {
      // Initializes the class, which registers it.
      Backend.libraryVersion();
    }
    return instance;
  }

  /** Registers the one implementation. */
  protected static void register(Contract contract) {
    instance = contract;
  }

  /** Returns an event in front of a new driver. */
  public abstract Event event(Platform platform, int device, EventDriver driver);

  /** Returns the driver behind an event. */
  public abstract EventDriver driver(Event event);

  /** Returns a stream in front of a new driver. */
  public abstract Stream stream(
      Platform platform, int device, Function<StreamContext, StreamDriver> driver);

  /** Returns the driver behind a stream. */
  public abstract StreamDriver driver(Stream stream);

  /** Returns the driver behind a graph, or null for one whose operations are enqueued anew. */
  public abstract GraphDriver driver(Graph graph);
}
