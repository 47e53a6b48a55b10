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
 * A libtorch that a Java framework has loaded into this process. It wraps the framework's tensors
 * as buffers without a copy, through libtorch's stable C functions. A framework is supported if it
 * exposes the address of its {@code at::Tensor}, which libtorch calls an {@code AtenTensorHandle}.
 * Thread-safe.
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
   * {@return the libtorch that this process has loaded, found among its mapped files} This method
   * does not load a library.
   *
   * @throws LibraryNotFoundException if no libtorch is loaded
   * @throws IllegalStateException if more than one is loaded; use {@link #at} then
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
              + "; select one with Libtorch.at");
    }
    return files.getFirst();
  }

  /**
   * Uses the libtorch at a path, loading it if necessary.
   *
   * @param path the file {@code libtorch_cpu.so}, or a link to it
   * @return the libtorch
   * @throws LibraryNotFoundException if the file does not exist or cannot be loaded
   */
  @SuppressWarnings("restricted") // Looks up native functions.
  public static Libtorch at(Path path) {
    Objects.requireNonNull(path, "path");
    if (!Files.exists(path)) {
      throw notFound("argument path", path.toString(), "there is no such file");
    }
    try {
      // Mapped files, including the CUDA part, are listed by their real paths.
      Path real = path.toRealPath();
      return new Libtorch(SymbolLookup.libraryLookup(real, Arena.global()), real);
    } catch (IOException | IllegalArgumentException e) {
      throw notFound("argument path", path.toString(), e.getMessage());
    }
  }

  private static LibraryNotFoundException notFound(String source, String location, String reason) {
    return new LibraryNotFoundException(
        "torch_cpu",
        List.of(new Attempt(source, location, reason, false)),
        "Create a tensor in the framework first, which loads " + CPU + ".");
  }

  /** {@return the real path of the library file} */
  public Path path() {
    return path;
  }

  /**
   * Wraps a tensor's memory as a buffer, without a copy: tensor and buffer share the same bytes.
   *
   * <p>The buffer holds its own reference to the tensor's memory, like another variable in the
   * framework: the framework may close or drop its tensor at once. {@link Buffer#close} releases
   * that reference once no stream uses the buffer any more; until then the memory is not freed. The
   * buffer does not follow operations that give the tensor other memory ({@code set_data}, {@code
   * resize_}), and writes through the buffer do not update the version counters of automatic
   * differentiation.
   *
   * <p>This method does not wait for the framework's work. On CUDA that work is enqueued on the
   * framework's current stream, see {@link #currentStream}; on CPUs it is already complete.
   *
   * @param tensor the address of the {@code at::Tensor}, which must not be freed during this call
   * @param name the tensor's name in messages, such as {@code layer1.weight}
   * @param comm the communicator of the rank that uses the buffer: on NCCL the tensor must be on
   *     its device, on the reference backend in host memory
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
          "tensor " + name + " has the address 0; it was closed or never created");
    }
    Tensor facts = new Tensor(shim, tensor, name);
    facts.checkDefined();
    DataType type = facts.dataType();
    facts.checkDevice(comm);
    facts.checkContiguous();
    long reference = shim.getLong("aoti_torch_new_tensor_handle", tensor);
    try {
      return view(facts, type, comm, () -> release(reference));
    } catch (RuntimeException | Error cause) {
      release(reference);
      throw cause;
    }
  }

  private void release(long reference) {
    shim.call("aoti_torch_delete_tensor_object", reference);
  }

  @SuppressWarnings("restricted") // The size comes from libtorch.
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
   * Wraps the stream on which libtorch currently enqueues this thread's work. To order collectives
   * after backward without waiting in Java, record an event on it and make the stream of the
   * collectives wait for the event.
   *
   * @param device the CUDA device, from 0
   * @return the stream, for the caller to close; this does not close the framework's stream
   * @throws IllegalStateException if libtorch's CUDA part is not loaded
   * @throws LibtorchException if libtorch rejects the device
   */
  public Stream currentStream(int device) {
    return CudaStream.ofAddress(currentStreamAddress(device), device);
  }

  long currentStreamAddress(int device) {
    if (device < 0) {
      throw new IllegalArgumentException("device is " + device + "; it must be 0 or more");
    }
    return cuda().getDeviceLong("aoti_torch_get_current_cuda_stream", device);
  }

  @SuppressWarnings("restricted") // Looks up native functions.
  private Shim cuda() {
    Path file = path.resolveSibling(CUDA);
    if (!LoadedFiles.named(CUDA).contains(file)) {
      throw new IllegalStateException(
          "libtorch's CUDA part, " + file + ", is not loaded; this libtorch supports only CPUs");
    }
    return new Shim(SymbolLookup.libraryLookup(file, Arena.global()), file.toString());
  }

  @Override
  public String toString() {
    return "Libtorch[" + path + "]";
  }
}
