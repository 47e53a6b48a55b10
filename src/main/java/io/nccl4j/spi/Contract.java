package io.nccl4j.spi;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeviceType;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;
import java.util.function.Predicate;

/**
 * What the contract does for the public classes of its backends and hides from programs: putting
 * its own objects in front of drivers, finding the driver behind one, and making its checks for
 * methods that only one backend has.
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

  /**
   * Initializes a backend's classes and those of this package on a thread with plenty of stack,
   * when the first backend of a kind is opened. An {@link Error} in a class initializer, such as a
   * {@link StackOverflowError} that the program survives, makes the class unusable for the life of
   * the process.
   *
   * @param names the backend's outermost classes, by their names after {@code io.nccl4j.}
   * @param usable whether a class, outermost or nested, can be initialized at all
   */
  public abstract void initialize(List<String> names, Predicate<Class<?>> usable);

  /** Returns a backend in front of a new driver. */
  public abstract Backend backend(BackendDriver driver);

  /** Returns the driver behind a backend. */
  public abstract BackendDriver driver(Backend backend);

  /**
   * Throws unless a backend is open.
   *
   * @throws IllegalStateException if it is closed
   */
  public abstract void checkOpen(Backend backend);

  /**
   * Throws unless a backend has a device.
   *
   * @throws IllegalArgumentException if there is none of this index
   */
  public abstract void checkDevice(Backend backend, int device);

  /** Returns a stream in front of a new driver. */
  public abstract Stream stream(
      DeviceType platform, int device, Function<StreamContext, StreamDriver> driver);

  /** Returns the driver behind a stream. */
  public abstract StreamDriver driver(Stream stream);

  /** Returns an event in front of a new driver. */
  public abstract Event event(DeviceType platform, int device, EventDriver driver);

  /** Returns the driver behind an event. */
  public abstract EventDriver driver(Event event);

  /** Returns the driver behind a graph, or null for one whose operations are enqueued anew. */
  public abstract GraphDriver driver(Graph graph);

  /** Returns the driver behind a communicator. */
  public abstract CommunicatorDriver driver(Communicator communicator);

  /** Does all of {@link Backend#newCommunicator} but connecting. */
  public abstract Communicator unconnected(
      Backend backend,
      List<UniqueId> ids,
      int worldSize,
      int rank,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver);

  /** Does all of {@link Backend#join} but connecting. */
  public abstract Communicator unconnectedJoining(
      Backend backend,
      UniqueId growId,
      int newSize,
      int rank,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver);

  /** Returns what makes the children of a communicator. */
  public abstract ChildMaker children(Communicator parent);

  /**
   * Connects at once, or when this thread's group ends.
   *
   * @param parent the communicator that this one is made of, or null
   * @return the communicator
   */
  public abstract Communicator connected(Communicator unconnected, Communicator parent);

  /**
   * Connects in a thread of its own.
   *
   * @return a stage that nothing else can complete, and that fails with why there is no connection
   * @throws IllegalStateException if this thread has a group open
   */
  public abstract CompletionStage<Communicator> connectedAsync(Communicator unconnected);

  /**
   * Closes as {@link Communicator#close} does, the waiting in a thread of its own.
   *
   * @return a stage that nothing else can complete; it fails with what {@code close} would throw
   */
  public abstract CompletionStage<Void> closeAsync(Communicator communicator);

  /**
   * Launches an operation that one backend alone has, or leaves it to this thread's group or the
   * stream's capture.
   *
   * @param source the memory that it reads, or null
   * @throws IllegalStateException if the communicator or the stream is not open
   * @throws IllegalArgumentException if the stream is of another device or backend
   */
  public abstract void submit(
      Communicator communicator, BackendOperation operation, Buffer source, Stream stream);

  /**
   * Returns the checked calls that a lambda enqueues, none of them launched.
   *
   * @throws IllegalStateException if this thread has a group open, if the lambda makes
   *     communicators or closes what its operations use, or if a stream is being captured
   */
  public abstract List<? extends EnqueuedCall> record(Runnable body);
}
