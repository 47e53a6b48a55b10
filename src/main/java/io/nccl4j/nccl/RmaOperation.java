package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.bindings.nccl.ncclWaitSignalDesc_t;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.BackendOperation;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * One-sided operations, which access a peer's memory without a call by that peer. Signal index,
 * context and flags are always 0, as this release of NCCL requires.
 */
sealed interface RmaOperation extends BackendOperation {
  /** Returns the name of NCCL's function. */
  String function();

  /** Calls NCCL. Called by the thread inside the communicator. */
  int call(MemorySegment comm, MemorySegment stream);

  @Override
  default void checkOpen() {
    // A signal uses only its communicator.
  }

  /**
   * A write into a peer's window, followed by a signal.
   *
   * @param offset the offset in the peer's window, in bytes
   */
  record Put(Registrations registrations, Buffer source, int peer, Window window, long offset)
      implements RmaOperation {

    /** Checks the arguments of {@link NcclCommunicator#putSignal}. */
    static Put checked(
        Registrations registrations, Buffer source, int peer, Window window, long offset) {
      CommunicatorHandle communicator = registrations.communicator();
      communicator.library().require("ncclPutSignal");
      communicator.context().checkUsable(source, "source");
      checkPeer(communicator, peer);
      registrations.checkPut(source, window);
      if (source.count() == 0) {
        throw new IllegalArgumentException(
            "source has count 0; a put needs data (signal() signals a peer without data)");
      }
      Buffer target = window.buffer();
      int bytes = source.type().bytes();
      long available = target.byteSize() - source.byteSize();
      if (offset < 0 || available < 0 || offset > available / bytes) {
        throw new IllegalArgumentException(
            "offset is %d; %d elements of %s at that offset are not within the window's %d bytes"
                .formatted(offset, source.count(), source.type(), target.byteSize()));
      }
      return new Put(registrations, source, peer, window, offset * bytes);
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
    public int call(MemorySegment comm, MemorySegment stream) {
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
          stream);
    }

    @Override
    public void checkOpen() {
      registrations.checkPut(source, window);
    }
  }

  /** A signal without data. */
  record Signal(int peer) implements RmaOperation {
    /** Checks the arguments of {@link NcclCommunicator#signal}. */
    static Signal checked(CommunicatorHandle communicator, int peer) {
      communicator.library().require("ncclSignal");
      communicator.context().checkConnected();
      checkPeer(communicator, peer);
      return new Signal(peer);
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
    public int call(MemorySegment comm, MemorySegment stream) {
      return nccl_h.ncclSignal(peer, 0, 0, 0, comm, stream);
    }
  }

  /** A wait for peers' signals. */
  record Wait(List<WaitSignal> signals) implements RmaOperation {

    /** Checks the arguments of {@link NcclCommunicator#waitSignal}. */
    static Wait checked(CommunicatorHandle communicator, List<WaitSignal> signals) {
      communicator.library().require("ncclWaitSignal");
      communicator.context().checkConnected();
      List<WaitSignal> copy = Arguments.copyOf(signals, "signals");
      if (copy.isEmpty()) {
        throw new IllegalArgumentException("signals is empty; it must name a peer to wait for");
      }
      Set<Integer> peers = new HashSet<>();
      for (WaitSignal signal : copy) {
        checkPeer(communicator, signal.peer());
        if (!peers.add(signal.peer())) {
          throw new IllegalArgumentException(
              "signals names peer " + signal.peer() + " twice; each peer has one count");
        }
      }
      return new Wait(copy);
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
    public int call(MemorySegment comm, MemorySegment stream) {
      // NCCL copies the descriptors before it returns, also within a group.
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment descriptors = ncclWaitSignalDesc_t.allocateArray(signals.size(), arena);
        for (int i = 0; i < signals.size(); i++) {
          MemorySegment descriptor = ncclWaitSignalDesc_t.asSlice(descriptors, i);
          ncclWaitSignalDesc_t.opCnt(descriptor, signals.get(i).count());
          ncclWaitSignalDesc_t.peer(descriptor, signals.get(i).peer());
          ncclWaitSignalDesc_t.sigIdx(descriptor, 0);
          ncclWaitSignalDesc_t.ctx(descriptor, 0);
        }
        return nccl_h.ncclWaitSignal(signals.size(), descriptors, comm, stream);
      }
    }
  }

  private static void checkPeer(CommunicatorHandle communicator, int peer) {
    Arguments.inRange(peer, "peer", 0, communicator.context().size() - 1);
  }
}
