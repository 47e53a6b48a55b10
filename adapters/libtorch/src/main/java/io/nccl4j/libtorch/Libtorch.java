package io.nccl4j.libtorch;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceType;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.LibraryNotFoundException.Attempt;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;

/**
 * The libtorch of this process, through its stable C functions: whatever Java framework has loaded
 * it, its tensors become buffers without a copy. A framework is supported if it can tell the
 * address of its {@code at::Tensor}, which libtorch calls an {@code AtenTensorHandle}. Any thread
 * may use it.
 */
public final class Libtorch {
  private static final String CPU = "libtorch_cpu.so";
  private static final String CUDA = "libtorch_cuda.so";

  private static volatile Libtorch loaded;

  private final Shim shim;
  private final Path path;

  private Libtorch(SymbolLookup symbols, Path path) {
    this(new Shim(symbols, path.toString()), path);
  }

  Libtorch(Shim shim, Path path) {
    this.shim = shim;
    this.path = path;
  }

  /**
   * {@return the libtorch that this process has loaded, found among its mapped files; none is
   * loaded here}
   *
   * @throws LibraryNotFoundException if it has loaded none yet
   * @throws IllegalStateException if it has loaded more than one: only {@link #at} then tells them
   *     apart
   */
  public static Libtorch loaded() {
    Libtorch found = loaded;
    if (found == null) {
      found = at(only(LoadedFiles.named(CPU)));
      loaded = found;
    }
    return found;
  }

  static Path only(List<Path> files) {
    if (files.isEmpty()) {
      throw notFound("files mapped by this process", "-", "none of them is a " + CPU);
    }
    if (files.size() > 1) {
      throw new IllegalStateException(
          "this process has loaded more than one libtorch, "
              + files.stream().map(Path::toString).collect(Collectors.joining(" and "))
              + "; name the one of the tensors with Libtorch.at");
    }
    return files.getFirst();
  }

  /**
   * Takes a certain libtorch, and loads it if this process has not.
   *
   * @param path the file {@code libtorch_cpu.so}, or a link to it
   * @return that libtorch
   * @throws LibraryNotFoundException if the file is not there or cannot be loaded
   */
  @SuppressWarnings("restricted") // Finding native functions is what this class is for.
  public static Libtorch at(Path path) {
    Objects.requireNonNull(path, "path");
    if (!Files.exists(path)) {
      throw notFound("argument path", path.toString(), "there is no such file");
    }
    try {
      // What is mapped, the CUDA part too, is known by its real path.
      Path real = path.toRealPath();
      return new Libtorch(SymbolLookup.libraryLookup(real, Arena.global()), real);
    } catch (IOException | IllegalArgumentException e) {
      throw notFound("argument path", path.toString(), e.getMessage());
    }
  }

  private static LibraryNotFoundException notFound(String source, String location, String reason) {
    return new LibraryNotFoundException(
        "torch_cpu",
        List.of(new Attempt(source, location, reason)),
        "Let the framework make a tensor first, which loads " + CPU + ".");
  }

  /** {@return the file that the functions are in, by its real path} */
  public Path path() {
    return path;
  }

  /**
   * Makes a tensor's memory a buffer, without a copy: the same bytes, seen by both.
   *
   * <p>The buffer keeps the tensor's memory alive by a reference of its own, as another variable in
   * the framework would: the framework may close or forget its tensor at once. {@link Buffer#close}
   * gives that reference back, when no stream uses the buffer any more; until then the memory is
   * not freed. What gives the tensor <i>other</i> memory ({@code set_data}, {@code resize_}) is not
   * seen by the buffer, and what is written through the buffer is not seen by the version counters
   * of automatic differentiation.
   *
   * <p>Nothing is waited for. On CUDA, the framework has enqueued its work on its own current
   * stream: see {@link #currentStream}. On the reference it has done it.
   *
   * @param tensor the address of the {@code at::Tensor}, which nobody frees during this call
   * @param name what to call the tensor in messages, such as {@code layer1.weight}
   * @param comm whose rank will use the buffer: on NCCL the tensor must be on its device, on the
   *     reference in host memory
   * @return a buffer of all elements in row-major order, for the caller to close
   * @throws IllegalArgumentException if the address is 0, or the tensor is undefined, of a type
   *     that NCCL lacks, such as complex, quantized, bool or int16, on another device, not strided
   *     (sparse, mkldnn) or not contiguous; checked in this order
   * @throws LibtorchException if a function of libtorch fails or is missing
   */
  public Buffer buffer(long tensor, String name, Communicator comm) {
    Objects.requireNonNull(name, "name");
    Objects.requireNonNull(comm, "comm");
    if (tensor == 0) {
      throw new IllegalArgumentException(
          "tensor " + name + " has the address 0; it was closed, or never made");
    }
    Tensor facts = new Tensor(shim, tensor, name);
    facts.checkDefined();
    DataType type = facts.dataType();
    facts.checkDevice(comm);
    facts.checkContiguous();
    long own = shim.askLong("aoti_torch_new_tensor_handle", tensor);
    try {
      return view(facts, type, comm, () -> release(own));
    } catch (RuntimeException | Error refused) {
      release(own);
      throw refused;
    }
  }

  private void release(long own) {
    shim.describe("aoti_torch_delete_tensor_object", own);
  }

  @SuppressWarnings("restricted") // libtorch says how long the memory is.
  private static Buffer view(Tensor facts, DataType type, Communicator comm, Runnable release) {
    long address = facts.dataAddress();
    if (comm.backend().deviceType() == DeviceType.CUDA) {
      return Buffer.ofDeviceAddress(address, type, facts.count(), comm.device(), release);
    }
    MemorySegment memory =
        MemorySegment.ofAddress(address).reinterpret(type.byteSize(facts.count()));
    return Buffer.ofHostSegment(memory, type, facts.count(), comm.device(), release);
  }

  /**
   * Wraps the stream on which libtorch enqueues this thread's work now. An event recorded on it
   * after the backward pass, and waited for by the stream of the collectives, orders the two: no
   * waiting in Java.
   *
   * @param device the CUDA device, from 0
   * @return the stream, for the caller to close; the framework's own is left alone by that
   * @throws IllegalStateException if libtorch's CUDA part is not loaded
   * @throws LibtorchException if libtorch refuses the device
   */
  public Stream currentStream(int device) {
    return CudaStream.ofAddress(currentStreamAddress(device), device);
  }

  long currentStreamAddress(int device) {
    if (device < 0) {
      throw new IllegalArgumentException("device is " + device + "; it must be 0 or more");
    }
    return cuda().askOfDevice("aoti_torch_get_current_cuda_stream", device);
  }

  @SuppressWarnings("restricted") // Finding native functions is what this class is for.
  private Shim cuda() {
    Path file = path.resolveSibling(CUDA);
    if (!LoadedFiles.named(CUDA).contains(file)) {
      throw new IllegalStateException(
          "libtorch's CUDA part, " + file + ", is not loaded; this libtorch is for processors");
    }
    return new Shim(SymbolLookup.libraryLookup(file, Arena.global()), file.toString());
  }

  @Override
  public String toString() {
    return "Libtorch[" + path + "]";
  }
}
