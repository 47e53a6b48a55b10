package io.nccl4j.spi;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeviceType;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;

/**
 * Internal access to {@code io.nccl4j} for the public classes of its backends: creates public
 * objects for drivers, returns the driver of an object, and performs the checks for methods that
 * only one backend has.
 */
public abstract class Contract {
  private static volatile Contract instance;

  /** Creates the only implementation. */
  protected Contract() {}

  /** Returns the implementation. */
  public static Contract get() {
    if (instance == null) {
      // Initializes the class, which registers it.
      Backend.libraryVersion();
    }
    return instance;
  }

  /** Registers the only implementation. */
  protected static void register(Contract contract) {
    instance = contract;
  }

  /** Creates the backend of a new driver. */
  public abstract Backend backend(BackendDriver driver);

  /** Returns the driver of a backend. */
  public abstract BackendDriver driver(Backend backend);

  /**
   * Throws unless a backend is open.
   *
   * @throws IllegalStateException if it is closed
   */
  public abstract void checkOpen(Backend backend);

  /**
   * Throws unless a backend can make an object now.
   *
   * @param call what is attempted, for the message
   * @throws IllegalStateException if it is closed, or this thread is capturing a graph
   */
  public abstract void checkMakes(Backend backend, String call);

  /**
   * Throws unless a backend has a device.
   *
   * @throws IllegalArgumentException if no device has this index
   */
  public abstract void checkDevice(Backend backend, int device);

  /** Creates the stream of a new driver. */
  public abstract Stream stream(
      DeviceType deviceType, int device, Function<StreamContext, StreamDriver> driver);

  /** Returns the driver of a stream. */
  public abstract StreamDriver driver(Stream stream);

  /** Returns the driver of an event. */
  public abstract EventDriver driver(Event event);

  /** Returns the driver of a graph, or null if the graph enqueues its operations again. */
  public abstract GraphDriver driver(Graph graph);

  /** Returns the driver of a communicator. */
  public abstract CommunicatorDriver driver(Communicator communicator);

  /**
   * Makes a listener see the launches of a communicator's collectives from now on.
   *
   * @param listener the listener; null for none
   * @throws IllegalStateException if the communicator has another listener
   */
  public abstract void listen(Communicator communicator, LaunchListener listener);

  /** Does the same as {@link Backend#newCommunicator}, but does not connect. */
  public abstract Communicator unconnected(
      Backend backend,
      List<UniqueId> ids,
      int worldSize,
      int rank,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver);

  /** Does the same as {@link Backend#join}, but does not connect. */
  public abstract Communicator unconnectedJoining(
      Backend backend,
      UniqueId growId,
      int newSize,
      int rank,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver);

  /** Returns the factory of a communicator's children. */
  public abstract ChildMaker children(Communicator parent);

  /**
   * Connects at once, or when this thread's group ends.
   *
   * @param parent the communicator that this one is created from, or null
   * @return the communicator
   */
  public abstract Communicator connected(Communicator unconnected, Communicator parent);

  /**
   * Connects in a new thread.
   *
   * @return a stage that only this operation completes; it fails with the exception of connecting
   * @throws IllegalStateException if this thread has a group open
   */
  public abstract CompletionStage<Communicator> connectedAsync(Communicator unconnected);

  /**
   * Returns a new exception of the class that corresponds to a result code.
   *
   * @param lastError the library's last-error text, or an empty string
   */
  public abstract NcclException failure(String function, int code, String text, String lastError);

  /** Returns the known details of an exception. */
  public abstract FailureDetails details(NcclException failure);

  /**
   * Sets the details of an exception, unless they are already set. The thread that creates the
   * exception calls this method before it passes the exception to another thread.
   *
   * @return the exception
   */
  public abstract NcclException initDetails(NcclException failure, FailureDetails details);

  /**
   * Returns a new exception of the same class and with the same texts, whose cause is the first. If
   * several waits end for one reason, each throws its own, since others may be suppressed in it.
   */
  public abstract NcclException copyOf(NcclException first, FailureDetails details);

  /**
   * Prevents a buffer from being closed while its memory is used for longer than one operation.
   *
   * @param holder the user of the memory, for the message when closing the buffer fails
   * @return an action that releases the memory; it can run on any thread, and repeatedly
   * @throws IllegalStateException if the buffer is closed
   */
  public abstract Runnable retain(Buffer buffer, String holder);

  /**
   * Launches an operation that only one backend has, or adds it to this thread's group or the
   * stream's capture.
   *
   * @param source the memory that it reads, or null
   * @throws IllegalStateException if the communicator or the stream is not open
   * @throws IllegalArgumentException if the stream is of another device or backend
   */
  public abstract void submit(
      Communicator communicator, BackendOperation operation, Buffer source, Stream stream);

  /**
   * Returns the validated calls that a lambda enqueues, without launching them.
   *
   * @throws IllegalStateException if this thread has a group open, if the lambda creates
   *     communicators or closes an object that its operations use, or if a stream is being captured
   */
  public abstract List<? extends EnqueuedCall> record(Runnable body);
}
