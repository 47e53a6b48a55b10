package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.BlockingCalls;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;

/** The memory that is registered with one communicator. */
final class RegistrationTable {
  private final NativeCommunicator communicator;
  private final List<MemoryHandle> handles = new ArrayList<>();
  private boolean ended;

  RegistrationTable(NativeCommunicator communicator) {
    this.communicator = communicator;
  }

  NativeCommunicator communicator() {
    return communicator;
  }

  /** Checks that this rank can use the buffer now, and that it is not empty. */
  void check(Buffer buffer) {
    communicator.context().checkUsable(buffer, "buffer");
    if (buffer.count() == 0) {
      throw new IllegalArgumentException("buffer has count 0; it must have 1 element or more");
    }
  }

  /**
   * Retains memory and registers it with NCCL.
   *
   * @param waitedFor what the call waits for, for the message of a timeout
   */
  MemoryHandle register(MemoryHandle.Kind kind, Buffer buffer, String waitedFor) {
    MemoryHandle handle = new MemoryHandle(kind, buffer, "a registration with " + communicator);
    add(handle);
    try {
      communicator.callWithDeadline(kind.registering(), waitedFor, handle::register);
      return handle;
    } catch (NcclTimeoutException | CancellationException | CommunicatorAbortedException e) {
      // The call is still running and may yet register the memory. It ends with the communicator.
      handle.abandonCall();
      throw e;
    } catch (RuntimeException failure) {
      drop(handle);
      throw failure;
    }
  }

  /** Deregisters memory, unless that is done; waits if the communicator is being closed. */
  void close(MemoryHandle handle) {
    String function = handle.kind().deregistering();
    if (communicator.context().isOpen() && contains(handle)) {
      communicator.finishWithDeadline(function, comm -> deregister(handle, comm));
      return;
    }
    Duration timeout = communicator.timeout();
    BlockingCalls.uninterrupted(timeout, limit -> awaitClosing(handle, function, limit));
  }

  private void awaitClosing(MemoryHandle handle, String function, Deadline limit) {
    Backoff backoff = Backoff.betweenQueries(limit);
    while (closing() && contains(handle)) {
      if (!BlockingCalls.pause(backoff, function)) {
        throw new NcclTimeoutException(function, limit.timeout(), "the end of " + communicator);
      }
    }
  }

  /** Returns whether the communicator can no longer be used, but is not freed yet. */
  private boolean closing() {
    return !communicator.context().isOpen() && !communicator.handle().ended();
  }

  private void deregister(MemoryHandle handle, MemorySegment comm) {
    if (contains(handle)) {
      NcclResults.check(
          communicator.handle().guarded(() -> handle.deregister(comm)),
          handle.kind().deregistering());
      drop(handle);
    }
  }

  /**
   * Deregisters all memory, the last first, except where NCCL may still run the registering call:
   * it frees that with the communicator. Called by the thread inside the communicator.
   */
  void deregisterAll(MemorySegment comm) {
    for (MemoryHandle handle : snapshot().reversed()) {
      if (!handle.callAbandoned()) {
        deregister(handle, comm);
      }
    }
  }

  /** Releases all memory. Called once NCCL has freed the communicator and its registrations. */
  void releaseAll() {
    List<MemoryHandle> snapshot;
    synchronized (this) {
      ended = true;
      snapshot = snapshot();
      handles.clear();
    }
    snapshot.forEach(MemoryHandle::release);
  }

  private void add(MemoryHandle handle) {
    synchronized (this) {
      if (!ended) {
        handles.add(handle);
        return;
      }
    }
    handle.release();
    throw new CommunicatorAbortedException(handle.kind().registering(), communicator.toString());
  }

  /** Releases memory that is not registered with NCCL, or not any more. */
  void drop(MemoryHandle handle) {
    boolean removed;
    synchronized (this) {
      removed = handles.remove(handle);
    }
    if (removed) {
      handle.release();
    }
  }

  synchronized boolean contains(MemoryHandle handle) {
    return handles.contains(handle);
  }

  private synchronized List<MemoryHandle> snapshot() {
    return List.copyOf(handles);
  }
}
