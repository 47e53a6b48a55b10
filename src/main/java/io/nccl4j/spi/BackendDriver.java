package io.nccl4j.spi;

import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceType;
import io.nccl4j.Feature;
import io.nccl4j.UniqueId;
import java.util.List;

/**
 * A backend's part of a {@link io.nccl4j.Backend}: it makes the drivers of everything else. All
 * arguments were checked before. Any thread may use one.
 */
public interface BackendDriver {
  /** Returns the backend's name. */
  String name();

  /** Returns what the backend's devices are. */
  DeviceType deviceType();

  /** Returns the devices, in the order of their indices; at least one. */
  List<Device> devices();

  /** Returns whether this backend can do something, on all its devices. Tries nothing. */
  boolean supports(Feature feature);

  /** Makes an id for one communicator. */
  UniqueId newUniqueId();

  /** Closes an id that this backend has made, and that will not be used. */
  void closeUniqueId(UniqueId id);

  /**
   * Returns an unconnected driver of one rank of a new communicator.
   *
   * @param made the communicator, which knows rank, size, device and configuration
   */
  CommunicatorDriver newCommunicator(UniqueId id, CommunicatorContext made);

  /** Returns an unconnected driver of a new rank of a communicator that grows. */
  CommunicatorDriver join(UniqueId growId, CommunicatorContext made);

  /** Returns a new stream of a device that exists. */
  StreamDriver newStream(int device, StreamContext users);

  /** Returns a new event of a device that exists. */
  EventDriver newEvent(int device);

  /** Allocates memory of a device that exists. */
  Allocation allocate(int device, DataType type, long count);

  /** Allocates host memory that all devices can use. */
  Allocation allocatePinned(DataType type, long count);

  /**
   * Launches the calls of one group, of communicators of this backend; all of them or, if it
   * throws, none to rely on.
   *
   * @param calls the calls, in the order in which they were made; at least one. The caller may
   *     write others into the list later
   * @param only the one communicator whose calls they are, or null where there may be several
   */
  void launchGroup(List<? extends EnqueuedCall> calls, CommunicatorDriver only);
}
