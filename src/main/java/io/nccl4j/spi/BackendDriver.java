package io.nccl4j.spi;

import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceType;
import io.nccl4j.Feature;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.time.Duration;
import java.util.List;

/**
 * The driver of a {@link io.nccl4j.Backend}, which creates all other drivers. Arguments are already
 * validated. Any thread may use a driver.
 */
public interface BackendDriver {
  /** Returns the backend's name. */
  String name();

  /** Returns the type of the backend's devices. */
  DeviceType deviceType();

  /** Returns the timeout of communicators whose configuration has none. */
  Duration defaultTimeout();

  /** Returns the devices, in the order of their indices; at least one. */
  List<Device> devices();

  /** Returns whether this backend supports a feature on all its devices. Makes no native call. */
  boolean supports(Feature feature);

  /** Creates an id for one communicator. */
  UniqueId newUniqueId();

  /** Closes an id that this backend created and that will not be used. */
  void closeUniqueId(UniqueId id);

  /**
   * Returns an unconnected driver of one rank of a new communicator.
   *
   * @param context the communicator, with its rank, size, device and configuration
   */
  CommunicatorDriver newCommunicator(UniqueId id, CommunicatorContext context);

  /** Returns an unconnected driver of a new rank of a communicator that grows. */
  CommunicatorDriver join(UniqueId growId, CommunicatorContext context);

  /** Creates a stream of an existing device. */
  StreamDriver newStream(int device, Stream.Priority priority, StreamContext users);

  /** Creates an event of an existing device. */
  EventDriver newEvent(int device);

  /** Allocates memory of an existing device. */
  Allocation allocate(int device, DataType type, long count);

  /** Allocates host memory that all devices can use. */
  Allocation allocatePinned(DataType type, long count);

  /**
   * Launches calls of communicators of this backend, which progress together. If it throws, none of
   * them is guaranteed to have been launched.
   *
   * @param calls the calls, in the order in which they were made; at least one
   */
  void launch(List<? extends EnqueuedCall> calls);
}
