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

/** The memory that one communicator knows, until it is given back or the communicator ends. */
final class RegistrationTable {
  private final NativeCommunicator communicator;
  private final List<MemoryHandle> known = new ArrayList<>();
  private boolean over;

  RegistrationTable(NativeCommunicator communicator) {
    this.communicator = communicator;
  }

  NativeCommunicator communicator() {
    return communicator;
  }

  /** Throws unless there is memory that this rank can use now. */
  void check(Buffer buffer) {
    communicator.context().checkUsable(buffer, "buffer");
    if (buffer.count() == 0) {
      throw new IllegalArgumentException("buffer has count 0; there must be memory to register");
    }
  }

  /**
   * Registers memory, which is held from before NCCL knows it.
   *
   * @param waitedFor what a time-out message says was waited for
   */
  MemoryHandle make(MemoryHandle.Kind kind, Buffer buffer, String waitedFor) {
    MemoryHandle made = new MemoryHandle(kind, buffer, "a registration with " + communicator);
    add(made);
    try {
      communicator.callWithDeadline(kind.registering(), waitedFor, made::register);
      return made;
    } catch (NcclTimeoutException | CancellationException | CommunicatorAbortedException e) {
      // The call goes on and NCCL may still come to know the memory: it ends with the communicator.
      made.abandonCall();
      throw e;
    } catch (RuntimeException refused) {
      drop(made);
      throw refused;
    }
  }

  /**
   * Gives memory back, unless it has been; where the communicator is being closed, waits for it.
   */
  void close(MemoryHandle registered) {
    String function = registered.kind().deregistering();
    if (communicator.context().isOpen() && knows(registered)) {
      communicator.finishWithDeadline(function, comm -> deregister(registered, comm));
      return;
    }
    Duration timeout = communicator.timeout();
    BlockingCalls.uninterrupted(timeout, limit -> awaitClosing(registered, function, limit));
  }

  private void awaitClosing(MemoryHandle registered, String function, Deadline limit) {
    Backoff backoff = Backoff.betweenQueries(limit);
    while (closing() && knows(registered)) {
      if (!BlockingCalls.pause(backoff, function)) {
        throw new NcclTimeoutException(function, limit.timeout(), "the end of " + communicator);
      }
    }
  }

  /** Returns whether nobody may use the communicator any more, and it is not freed yet. */
  private boolean closing() {
    return !communicator.context().isOpen() && !communicator.handle().ended();
  }

  private void deregister(MemoryHandle registered, MemorySegment comm) {
    if (knows(registered)) {
      NcclResults.check(
          communicator.handle().guarded(() -> registered.deregister(comm)),
          registered.kind().deregistering());
      drop(registered);
    }
  }

  /**
   * Gives everything back, the last first, but what NCCL may still be at, which it frees with the
   * communicator; by the thread inside the communicator.
   */
  void closeAll(MemorySegment comm) {
    for (MemoryHandle handle : all().reversed()) {
      if (!handle.callAbandoned()) {
        deregister(handle, comm);
      }
    }
  }

  /** Lets go of everything, since NCCL has freed the communicator with all that it knew. */
  void forgetAll() {
    List<MemoryHandle> all;
    synchronized (this) {
      over = true;
      all = all();
      known.clear();
    }
    all.forEach(MemoryHandle::release);
  }

  private void add(MemoryHandle registered) {
    synchronized (this) {
      if (!over) {
        known.add(registered);
        return;
      }
    }
    registered.release();
    throw new CommunicatorAbortedException(
        registered.kind().registering(), communicator.toString());
  }

  /** Forgets memory that NCCL does not know, or knows no more. */
  void drop(MemoryHandle registered) {
    boolean mine;
    synchronized (this) {
      mine = known.remove(registered);
    }
    if (mine) {
      registered.release();
    }
  }

  synchronized boolean knows(MemoryHandle registered) {
    return known.contains(registered);
  }

  private synchronized List<MemoryHandle> all() {
    return List.copyOf(known);
  }
}
