package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.cuda.DeviceMemory;
import io.nccl4j.internal.ffm.BlockingCalls;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Stream;

/**
 * The memory that is registered with one communicator, and which of it is a window. Checks the
 * arguments of registrations, windows and puts.
 */
final class Registrations {
  private final CommunicatorHandle communicator;
  private final List<MemoryHandle> handles = new ArrayList<>();
  // Closed windows are removed by the next lookup.
  private final List<Window> windows = new CopyOnWriteArrayList<>();
  private boolean ended;

  Registrations(CommunicatorHandle communicator) {
    this.communicator = communicator;
  }

  CommunicatorHandle communicator() {
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
    return !communicator.context().isOpen() && !communicator.ended();
  }

  private void deregister(MemoryHandle handle, MemorySegment comm) {
    if (contains(handle)) {
      NcclResults.check(
          communicator.guarded(() -> handle.deregister(comm)), handle.kind().deregistering());
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

  /** Checks that the memory and the options suit a window, and returns the options as a set. */
  Set<WindowOption> checkedOptions(Buffer buffer, WindowOption... options) {
    NcclVersion library = communicator.library();
    library.require("ncclCommWindowRegister");
    Objects.requireNonNull(options, "options");
    Set<WindowOption> set = EnumSet.noneOf(WindowOption.class);
    set.addAll(Arguments.copyOf(Arrays.asList(options), "options"));
    set.forEach(option -> option.require(library));
    check(buffer);
    if (buffer.memoryType() != Buffer.MemoryType.DEVICE
        || DeviceMemory.allocated(buffer.address())) {
      throw new IllegalArgumentException(
          "buffer is "
              + buffer
              + ", which CUDA cannot share as a window; allocate it with"
              + " NcclBackend.newRegistrableBuffer");
    }
    if (buffer.address() % Window.ALIGNMENT != 0) {
      throw new IllegalArgumentException(
          "buffer is at 0x%x; a window begins at a multiple of %d"
              .formatted(buffer.address(), Window.ALIGNMENT));
    }
    if (set.contains(WindowOption.SYMMETRIC)) {
      checkNoOverlap(buffer);
    }
    return Collections.unmodifiableSet(set);
  }

  private void checkNoOverlap(Buffer buffer) {
    symmetric()
        .filter(window -> window.overlaps(buffer))
        .findFirst()
        .ifPresent(
            window -> {
              throw new IllegalArgumentException(
                  "buffer " + buffer + " is in another symmetric window already: " + window);
            });
  }

  /** Registers checked memory, and waits for the other ranks. */
  Window newWindow(Communicator publicCommunicator, Buffer buffer, Set<WindowOption> options) {
    MemoryHandle handle =
        register(
            Window.kind(options), buffer, "all ranks to register a window with " + communicator);
    if (handle.handle().address() == 0) {
      drop(handle);
      throw new WindowsUnsupportedException(communicator.toString());
    }
    Window window = new Window(publicCommunicator, this, handle, options);
    windows.add(window);
    return window;
  }

  /** Checks that the memory can be put into that window of the peers. */
  void checkPut(Buffer source, Window window) {
    Objects.requireNonNull(window, "window");
    window.checkOpen("window");
    if (!window.isOf(this)) {
      throw new IllegalArgumentException(
          "window is of "
              + window.communicator()
              + "; it must be this rank's own, of "
              + communicator);
    }
    if (!window.options().contains(WindowOption.SYMMETRIC)) {
      throw new IllegalArgumentException("window is " + window + "; it must be a symmetric one");
    }
    if (symmetric().noneMatch(own -> own.contains(source))) {
      throw new IllegalArgumentException(
          "source is " + source + "; it must lie in a symmetric window of " + communicator);
    }
  }

  private Stream<Window> symmetric() {
    windows.removeIf(window -> !window.isOpen());
    return windows.stream().filter(window -> window.options().contains(WindowOption.SYMMETRIC));
  }
}
