package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.AddressLayout;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/**
 * NCCL's collectives, send and receive, with {@code long} addresses. These are the generated
 * functions, linked again with a {@code long} for every pointer: checking the scopes of segments
 * would cost every call, and is not needed here.
 *
 * <p>Each function is linked by its own nested class, as in the generated code. The class is named
 * like the function without {@code nccl}, and is not initialized if an older library lacks the
 * function.
 */
final class CollectiveDowncalls {
  private CollectiveDowncalls() {}

  private static final class AllReduce {
    static final MethodHandle HANDLE =
        linkWithLongs(
            "ncclAllReduce", nccl_h.ncclAllReduce$address(), nccl_h.ncclAllReduce$descriptor());
  }

  static int allReduce(long send, long recv, long count, int type, int op, long comm, long stream) {
    try {
      return (int) AllReduce.HANDLE.invokeExact(send, recv, count, type, op, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class ReduceScatter {
    static final MethodHandle HANDLE =
        linkWithLongs(
            "ncclReduceScatter",
            nccl_h.ncclReduceScatter$address(),
            nccl_h.ncclReduceScatter$descriptor());
  }

  static int reduceScatter(
      long send, long recv, long count, int type, int op, long comm, long stream) {
    try {
      return (int) ReduceScatter.HANDLE.invokeExact(send, recv, count, type, op, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class Reduce {
    static final MethodHandle HANDLE =
        linkWithLongs("ncclReduce", nccl_h.ncclReduce$address(), nccl_h.ncclReduce$descriptor());
  }

  static int reduce(
      long send, long recv, long count, int type, int op, int root, long comm, long stream) {
    try {
      return (int) Reduce.HANDLE.invokeExact(send, recv, count, type, op, root, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class Broadcast {
    static final MethodHandle HANDLE =
        linkWithLongs(
            "ncclBroadcast", nccl_h.ncclBroadcast$address(), nccl_h.ncclBroadcast$descriptor());
  }

  static int broadcast(
      long send, long recv, long count, int type, int root, long comm, long stream) {
    try {
      return (int) Broadcast.HANDLE.invokeExact(send, recv, count, type, root, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class Bcast {
    static final MethodHandle HANDLE =
        linkWithLongs("ncclBcast", nccl_h.ncclBcast$address(), nccl_h.ncclBcast$descriptor());
  }

  static int bcast(long buffer, long count, int type, int root, long comm, long stream) {
    try {
      return (int) Bcast.HANDLE.invokeExact(buffer, count, type, root, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class AllGather {
    static final MethodHandle HANDLE =
        linkWithLongs(
            "ncclAllGather", nccl_h.ncclAllGather$address(), nccl_h.ncclAllGather$descriptor());
  }

  static int allGather(long send, long recv, long count, int type, long comm, long stream) {
    try {
      return (int) AllGather.HANDLE.invokeExact(send, recv, count, type, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class AlltoAll {
    static final MethodHandle HANDLE =
        linkWithLongs(
            "ncclAlltoAll", nccl_h.ncclAlltoAll$address(), nccl_h.ncclAlltoAll$descriptor());
  }

  static int allToAll(long send, long recv, long count, int type, long comm, long stream) {
    try {
      return (int) AlltoAll.HANDLE.invokeExact(send, recv, count, type, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class Gather {
    static final MethodHandle HANDLE =
        linkWithLongs("ncclGather", nccl_h.ncclGather$address(), nccl_h.ncclGather$descriptor());
  }

  static int gather(long send, long recv, long count, int type, int root, long comm, long stream) {
    try {
      return (int) Gather.HANDLE.invokeExact(send, recv, count, type, root, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class Scatter {
    static final MethodHandle HANDLE =
        linkWithLongs("ncclScatter", nccl_h.ncclScatter$address(), nccl_h.ncclScatter$descriptor());
  }

  static int scatter(long send, long recv, long count, int type, int root, long comm, long stream) {
    try {
      return (int) Scatter.HANDLE.invokeExact(send, recv, count, type, root, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class Send {
    static final MethodHandle HANDLE =
        linkWithLongs("ncclSend", nccl_h.ncclSend$address(), nccl_h.ncclSend$descriptor());
  }

  static int send(long buffer, long count, int type, int peer, long comm, long stream) {
    try {
      return (int) Send.HANDLE.invokeExact(buffer, count, type, peer, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  private static final class Recv {
    static final MethodHandle HANDLE =
        linkWithLongs("ncclRecv", nccl_h.ncclRecv$address(), nccl_h.ncclRecv$descriptor());
  }

  static int recv(long buffer, long count, int type, int peer, long comm, long stream) {
    try {
      return (int) Recv.HANDLE.invokeExact(buffer, count, type, peer, comm, stream);
    } catch (Throwable failure) {
      throw unexpected(failure);
    }
  }

  @SuppressWarnings("restricted") // Same function and argument sizes as the generated binding.
  private static MethodHandle linkWithLongs(
      String name, MemorySegment function, FunctionDescriptor generated) {
    if (Boolean.getBoolean("jextract.trace.downcalls")) {
      return traced(name, generated.toMethodType());
    }
    MemoryLayout[] arguments =
        generated.argumentLayouts().stream()
            .map(layout -> layout instanceof AddressLayout ? ValueLayout.JAVA_LONG : layout)
            .toArray(MemoryLayout[]::new);
    MemoryLayout result = generated.returnLayout().orElseThrow();
    return Linker.nativeLinker().downcallHandle(function, FunctionDescriptor.of(result, arguments));
  }

  /** Returns the generated method, which prints each call if that property is set. */
  private static MethodHandle traced(String name, MethodType type) {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      MethodHandle segment =
          lookup.findStatic(
              MemorySegment.class,
              "ofAddress",
              MethodType.methodType(MemorySegment.class, long.class));
      MethodHandle method = lookup.findStatic(nccl_h.class, name, type);
      for (int i = 0; i < type.parameterCount(); i++) {
        if (type.parameterType(i) == MemorySegment.class) {
          method = MethodHandles.filterArguments(method, i, segment);
        }
      }
      return method;
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Rethrows a failure. Native functions throw nothing, so it comes from the virtual machine. */
  private static AssertionError unexpected(Throwable failure) {
    if (failure instanceof Error error) {
      throw error;
    }
    if (failure instanceof RuntimeException exception) {
      throw exception;
    }
    return new AssertionError(failure);
  }
}
