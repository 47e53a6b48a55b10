package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.bindings.nccl.ncclWaitSignalDesc_t;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.cuda.CudaStreamDriver;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.BackendOperation;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * The operations by which one rank reaches another's memory without the other's call. Signal index,
 * context and flags must be 0 in this release of NCCL, and are.
 */
sealed interface RmaOperation extends BackendOperation {
  /** Returns whose operation it is. */
  NativeCommunicator communicator();

  /** Returns the name of NCCL's function. */
  String function();

  /** Calls NCCL, by the thread inside the communicator. */
  int call(MemorySegment comm, MemorySegment onStream);

  @Override
  default void checkOpen() {
    // A signal uses nothing but its communicator.
  }

  @Override
  default void launch(StreamDriver stream) {
    CommunicatorHandle handle = communicator().handle();
    handle.enter(function());
    try {
      int result = make(stream);
      if (result != 0) {
        communicator().settle(result, function());
      }
    } finally {
      handle.leave();
    }
  }

  /** Makes the call in a group, by the thread inside; it answers success or a refusal. */
  default void enqueue(StreamDriver stream) {
    int result = make(stream);
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, function());
    }
  }

  private int make(StreamDriver stream) {
    CommunicatorHandle handle = communicator().handle();
    return handle.guarded(() -> call(handle.pointer(), ((CudaStreamDriver) stream).pointer()));
  }

  /**
   * A write into a peer's window, and a signal.
   *
   * @param offset where in the peer's window, in bytes
   */
  record Put(WindowRegistry windows, Buffer source, int peer, Window window, long offset)
      implements RmaOperation {

    /** Checks the arguments of {@link NcclCommunicator#putSignal}. */
    static Put checked(
        WindowRegistry windows, Buffer source, int peer, Window window, long offset) {
      NativeCommunicator communicator = windows.communicator();
      communicator.library().require("ncclPutSignal");
      communicator.context().checkUsable(source, "source");
      checkPeer(communicator, peer);
      windows.checkPut(source, window);
      if (source.count() == 0) {
        throw new IllegalArgumentException(
            "source has count 0; a put needs data, and signal() tells a peer without any");
      }
      Buffer target = window.buffer();
      int bytes = source.type().bytes();
      long room = target.byteSize() - source.byteSize();
      if (offset < 0 || room < 0 || offset > room / bytes) {
        throw new IllegalArgumentException(
            "offset is %d; %d elements of %s from there on do not lie within the window's %d bytes"
                .formatted(offset, source.count(), source.type(), target.byteSize()));
      }
      return new Put(windows, source, peer, window, offset * bytes);
    }

    @Override
    public NativeCommunicator communicator() {
      return windows.communicator();
    }

    @Override
    public String method() {
      return "putSignal";
    }

    @Override
    public String function() {
      return "ncclPutSignal";
    }

    @Override
    public int call(MemorySegment comm, MemorySegment onStream) {
      return nccl_h.ncclPutSignal(
          MemorySegment.ofAddress(source.address()),
          source.count(),
          source.type().code(),
          peer,
          window.handle().handle(),
          offset,
          0,
          0,
          0,
          comm,
          onStream);
    }

    @Override
    public void checkOpen() {
      windows.checkPut(source, window);
    }
  }

  /** A signal alone. */
  record Signal(NativeCommunicator communicator, int peer) implements RmaOperation {
    /** Checks the arguments of {@link NcclCommunicator#signal}. */
    static Signal checked(NativeCommunicator communicator, int peer) {
      communicator.library().require("ncclSignal");
      communicator.context().checkConnected();
      checkPeer(communicator, peer);
      return new Signal(communicator, peer);
    }

    @Override
    public String method() {
      return "signal";
    }

    @Override
    public String function() {
      return "ncclSignal";
    }

    @Override
    public int call(MemorySegment comm, MemorySegment onStream) {
      return nccl_h.ncclSignal(peer, 0, 0, 0, comm, onStream);
    }
  }

  /** A wait for peers' signals. */
  record Wait(NativeCommunicator communicator, List<WaitSignal> signals) implements RmaOperation {

    /** Checks the arguments of {@link NcclCommunicator#waitSignal}. */
    static Wait checked(NativeCommunicator communicator, List<WaitSignal> signals) {
      communicator.library().require("ncclWaitSignal");
      communicator.context().checkConnected();
      List<WaitSignal> kept = Arguments.copyOf(signals, "signals");
      if (kept.isEmpty()) {
        throw new IllegalArgumentException("signals is empty; there must be a peer to wait for");
      }
      Set<Integer> peers = new HashSet<>();
      for (WaitSignal expected : kept) {
        checkPeer(communicator, expected.peer());
        if (!peers.add(expected.peer())) {
          throw new IllegalArgumentException(
              "signals names peer " + expected.peer() + " twice; each peer has one count");
        }
      }
      return new Wait(communicator, kept);
    }

    @Override
    public String method() {
      return "waitSignal";
    }

    @Override
    public String function() {
      return "ncclWaitSignal";
    }

    @Override
    public int call(MemorySegment comm, MemorySegment onStream) {
      // NCCL copies the descriptors before it returns, also into a group.
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment descriptors = ncclWaitSignalDesc_t.allocateArray(signals.size(), arena);
        for (int i = 0; i < signals.size(); i++) {
          MemorySegment descriptor = ncclWaitSignalDesc_t.asSlice(descriptors, i);
          ncclWaitSignalDesc_t.opCnt(descriptor, signals.get(i).count());
          ncclWaitSignalDesc_t.peer(descriptor, signals.get(i).peer());
          ncclWaitSignalDesc_t.sigIdx(descriptor, 0);
          ncclWaitSignalDesc_t.ctx(descriptor, 0);
        }
        return nccl_h.ncclWaitSignal(signals.size(), descriptors, comm, onStream);
      }
    }
  }

  private static void checkPeer(NativeCommunicator communicator, int peer) {
    Arguments.inRange(peer, "peer", 0, communicator.context().size() - 1);
  }
}
