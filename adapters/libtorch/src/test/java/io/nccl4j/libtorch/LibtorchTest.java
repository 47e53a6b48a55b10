package io.nccl4j.libtorch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.LibraryNotFoundException;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.bytedeco.pytorch.Device;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.TensorOptions;
import org.bytedeco.pytorch.global.torch;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests with the libtorch of JavaCPP's presets, some of whose functions are replaced. */
@SuppressWarnings("restricted") // Replaces some of the library's functions by upcalls.
class LibtorchTest {
  private static Backend backend;
  private static Communicator comm;

  @BeforeAll
  static void connect() {
    backend = Backend.reference(1);
    comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
    tensor(torch.ScalarType.Float, 1).close();
  }

  @AfterAll
  static void disconnect() {
    comm.close();
    backend.close();
  }

  private static Tensor tensor(torch.ScalarType type, long... sizes) {
    return torch.ones(sizes, new TensorOptions(type));
  }

  private static String messageFor(Libtorch libtorch, Tensor tensor) {
    return assertThrows(
            IllegalArgumentException.class, () -> libtorch.buffer(tensor.address(), "w", comm))
        .getMessage();
  }

  private static String messageFor(Tensor tensor) {
    return messageFor(Libtorch.loaded(), tensor);
  }

  /** Returns the loaded library with some functions replaced, or removed if mapped to empty. */
  private static Libtorch altered(Map<String, Optional<MemorySegment>> functions) {
    Path path = Libtorch.loaded().path();
    SymbolLookup real = SymbolLookup.libraryLookup(path, Arena.global());
    SymbolLookup symbols = name -> functions.getOrDefault(name, real.find(name));
    return new Libtorch(new Shim(symbols, "libtorch_cpu.so"), path);
  }

  private static Libtorch without(String... functions) {
    Map<String, Optional<MemorySegment>> none = new HashMap<>();
    for (String function : functions) {
      none.put(function, Optional.empty());
    }
    return altered(none);
  }

  /** Returns a native function of a tensor whose result is always the given number. */
  private static Optional<MemorySegment> answering(int answer) {
    try {
      MethodHandle write =
          MethodHandles.lookup()
              .findStatic(
                  LibtorchTest.class,
                  "write",
                  MethodType.methodType(int.class, int.class, long.class, MemorySegment.class));
      FunctionDescriptor ask =
          FunctionDescriptor.of(
              ValueLayout.JAVA_INT,
              ValueLayout.JAVA_LONG,
              ValueLayout.ADDRESS.withTargetLayout(ValueLayout.JAVA_INT));
      return Optional.of(
          Linker.nativeLinker()
              .upcallStub(MethodHandles.insertArguments(write, 0, answer), ask, Arena.global()));
    } catch (ReflectiveOperationException e) {
      throw new LinkageError(e.getMessage(), e);
    }
  }

  @SuppressWarnings("unused") // The upcall of answering.
  private static int write(int answer, long tensor, MemorySegment result) {
    result.set(ValueLayout.JAVA_INT, 0, answer);
    return 0;
  }

  @Test
  void libraryIsFoundAmongTheMappedFiles() {
    assertEquals("libtorch_cpu.so", Libtorch.loaded().path().getFileName().toString());
  }

  @Test
  void exactlyOneLibraryMustBeLoaded() {
    Throwable none = assertThrows(LibraryNotFoundException.class, () -> Libtorch.only(List.of()));
    assertTrue(none.getMessage().contains("none of them is a libtorch_cpu.so"), none::toString);
    Path one = Path.of("/one/libtorch_cpu.so");
    assertEquals(one, Libtorch.only(List.of(one)));
    Throwable two =
        assertThrows(
            IllegalStateException.class,
            () -> Libtorch.only(List.of(one, Path.of("/two/libtorch_cpu.so"))));
    assertEquals(
        "this process has loaded more than one libtorch, /one/libtorch_cpu.so and"
            + " /two/libtorch_cpu.so; select one with Libtorch.at",
        two.getMessage());
  }

  @ParameterizedTest
  @CsvSource({
    "Float, FLOAT32",
    "Double, FLOAT64",
    "Half, FLOAT16",
    "BFloat16, BFLOAT16",
    "Float8_e4m3fn, FLOAT8E4M3",
    "Float8_e5m2, FLOAT8E5M2",
    "Byte, UINT8",
    "Char, INT8",
    "Int, INT32",
    "Long, INT64",
    "UInt32, UINT32",
    "UInt64, UINT64"
  })
  void typesOfNcclAreAccepted(torch.ScalarType scalar, DataType type) {
    Tensor tensor = torch.empty(new long[] {3, 2}, new TensorOptions(scalar), null);
    try (Buffer buffer = Libtorch.loaded().buffer(tensor.address(), "w", comm)) {
      assertEquals(type, buffer.type());
      assertEquals(6, buffer.count());
      assertEquals(tensor.data_ptr().address(), buffer.address());
    }
  }

  @ParameterizedTest
  @CsvSource({
    "Bool, bool",
    "Short, int16",
    "UInt16, uint16",
    "ComplexFloat, complex64",
    "ComplexDouble, complex128",
    "ComplexHalf, complex32",
    "Float8_e4m3fnuz, float8_e4m3fnuz",
    "Float8_e5m2fnuz, float8_e5m2fnuz",
    "Float8_e8m0fnu, float8_e8m0fnu"
  })
  void unsupportedTypeIsRejectedByName(torch.ScalarType scalar, String name) {
    Tensor tensor = torch.empty(new long[] {2}, new TensorOptions(scalar), null);
    assertEquals(
        "tensor w has the element type " + name + ", which NCCL does not have; convert it first",
        messageFor(tensor));
  }

  @ParameterizedTest
  @CsvSource({"QInt8, qint8", "QUInt8, quint8", "QInt32, qint32"})
  void quantizedTypeIsRejectedByName(torch.ScalarType scalar, String name) {
    Tensor quantized = torch.quantize_per_tensor(tensor(torch.ScalarType.Float, 2), 0.5, 0, scalar);
    assertEquals(
        "tensor w has the element type " + name + ", which NCCL does not have; convert it first",
        messageFor(quantized));
    try (Buffer buffer = Libtorch.loaded().buffer(quantized.dequantize().address(), "w", comm)) {
      assertEquals(DataType.FLOAT32, buffer.type());
    }
  }

  @Test
  void transposedTensorIsRejected() {
    Tensor transposed = tensor(torch.ScalarType.Float, 3, 2).t();
    assertEquals(
        "tensor w has sizes [2, 3] and strides [1, 2]; it must be contiguous, as after"
            + " contiguous()",
        messageFor(transposed));
    try (Buffer buffer = Libtorch.loaded().buffer(transposed.contiguous().address(), "w", comm)) {
      assertEquals(6, buffer.count());
    }
  }

  @Test
  void expandedTensorIsRejected() {
    assertTrue(messageFor(tensor(torch.ScalarType.Float, 1, 2).expand(3, 2)).contains("[0, 1]"));
  }

  @Test
  void dimensionsOfOneElementMayHaveAnyStride() {
    Tensor column = tensor(torch.ScalarType.Float, 4, 1).t();
    try (Buffer buffer = Libtorch.loaded().buffer(column.address(), "w", comm)) {
      assertEquals(4, buffer.count());
    }
  }

  @Test
  void sliceStartsAtItsFirstElement() {
    Tensor whole = tensor(torch.ScalarType.Float, 4, 3);
    Tensor rows = whole.narrow(0, 1, 2);
    try (Buffer buffer = Libtorch.loaded().buffer(rows.address(), "w", comm)) {
      assertEquals(whole.data_ptr().address() + 3 * Float.BYTES, buffer.address());
      assertEquals(6, buffer.count());
    }
  }

  @Test
  void scalarsAndEmptyTensorsAreAccepted() {
    Tensor scalar = tensor(torch.ScalarType.Float);
    Tensor empty = tensor(torch.ScalarType.Float, 0, 3);
    try (Buffer one = Libtorch.loaded().buffer(scalar.address(), "s", comm);
        Buffer none = Libtorch.loaded().buffer(empty.address(), "e", comm)) {
      assertEquals(1, one.count());
      assertEquals(0, none.count());
    }
  }

  @Test
  void sparseTensorIsRejected() {
    Tensor sparse = tensor(torch.ScalarType.Float, 2, 2).to_sparse();
    assertEquals(
        "tensor w has the layout sparse_coo; it must be strided, as after to_dense()",
        messageFor(sparse));
  }

  @Test
  void mkldnnTensorIsRejected() {
    Tensor mkldnn = tensor(torch.ScalarType.Float, 2, 2).to_mkldnn();
    assertEquals(
        "tensor w has the layout _mkldnn; it must be strided, as after to_dense()",
        messageFor(mkldnn));
    try (Buffer buffer = Libtorch.loaded().buffer(mkldnn.to_dense().address(), "w", comm)) {
      assertEquals(4, buffer.count());
    }
  }

  @Test
  void unknownLayoutIsRejectedByNumber() {
    Libtorch newer = altered(Map.of("aoti_torch_get_layout", answering(99)));
    assertEquals(
        "tensor w has the layout number 99; it must be strided, as after to_dense()",
        messageFor(newer, tensor(torch.ScalarType.Float, 2)));
  }

  @Test
  void undefinedTensorIsRejected() {
    assertEquals(
        "tensor w is undefined; it must have a shape and a type", messageFor(new Tensor()));
    String older = messageFor(without("aoti_torch_is_defined"), new Tensor());
    assertTrue(older.contains("(as undefined tensors have)"), older);
  }

  @Test
  void closedTensorIsRejected() {
    Tensor closed = tensor(torch.ScalarType.Float, 2);
    closed.close();
    assertEquals("tensor w has the address 0; it was closed or never created", messageFor(closed));
  }

  @Test
  void tensorWithoutMemoryIsRejected() {
    Tensor meta = tensor(torch.ScalarType.Float, 2).to(new Device("meta"), torch.ScalarType.Float);
    String message = messageFor(meta);
    assertTrue(message.startsWith("tensor w is on device meta; Communicator["), message);
    assertTrue(message.endsWith(" needs it on cpu"), message);
  }

  @Test
  void gpuTensorIsRejectedByTheReference() {
    int cuda = torch.DeviceType.CUDA.value;
    Libtorch onGpu =
        altered(
            Map.of(
                "aoti_torch_get_device_type", answering(cuda),
                "aoti_torch_get_device_index", answering(3)));
    String message = messageFor(onGpu, tensor(torch.ScalarType.Float, 2));
    assertTrue(message.startsWith("tensor w is on device cuda:3; Communicator["), message);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "aoti_torch_get_dtype",
        "aoti_torch_get_dim",
        "aoti_torch_get_strides",
        "aoti_torch_new_tensor_handle"
      })
  void libtorchWithoutAFunctionIsReportedAsTooOld(String function) {
    Tensor tensor = tensor(torch.ScalarType.Float, 2);
    LibtorchException tooOld =
        assertThrows(
            LibtorchException.class, () -> without(function).buffer(tensor.address(), "w", comm));
    assertEquals(
        "libtorch_cpu.so has no function "
            + function
            + "; it is too old or not libtorch. Use 2.4 or later",
        tooOld.getMessage());
    assertEquals(function, tooOld.function());
  }

  @Test
  void failedFunctionIsReported() {
    Tensor sparse = tensor(torch.ScalarType.Float, 1).to_sparse();
    LibtorchException failed =
        assertThrows(
            LibtorchException.class,
            () -> without("aoti_torch_get_layout").buffer(sparse.address(), "w", comm));
    assertEquals(
        "aoti_torch_get_data_ptr of libtorch_cpu.so returned 1; libtorch has written the reason to"
            + " stderr",
        failed.getMessage());
  }

  @Test
  void bufferKeepsTheTensorUntilItIsClosed() {
    Tensor tensor = tensor(torch.ScalarType.Double, 5);
    assertEquals(1, tensor.use_count());
    Buffer buffer = Libtorch.loaded().buffer(tensor.address(), "w", comm);
    assertEquals(2, tensor.use_count());
    buffer.close();
    assertEquals(1, tensor.use_count());
  }

  @Test
  void tensorIsNotKeptIfWrappingFails() {
    Tensor tensor = tensor(torch.ScalarType.Double, 5);
    assertThrows(
        LibtorchException.class,
        () -> without("aoti_torch_get_data_ptr").buffer(tensor.address(), "w", comm));
    assertEquals(1, tensor.use_count());
  }

  @Test
  void currentStreamNeedsCuda() {
    IllegalStateException none =
        assertThrows(IllegalStateException.class, () -> Libtorch.loaded().currentStream(0));
    assertTrue(
        none.getMessage()
            .endsWith("libtorch_cuda.so, is not loaded; this libtorch supports only CPUs"),
        none::toString);
    Throwable device =
        assertThrows(IllegalArgumentException.class, () -> Libtorch.loaded().currentStream(-1));
    assertEquals("device is -1; it must be 0 or more", device.getMessage());
  }

  @Test
  void linksAndRelativePathsAreResolved(@TempDir Path folder) throws IOException {
    Path path = Libtorch.loaded().path();
    Path link = Files.createSymbolicLink(folder.resolve("libtorch_cpu.so"), path);
    assertEquals(path, Libtorch.at(link).path());
    assertEquals(path, Libtorch.at(Path.of("").toAbsolutePath().relativize(path)).path());
  }

  @Test
  void fileThatIsNotALibraryIsNotFound() {
    Throwable missing =
        assertThrows(LibraryNotFoundException.class, () -> Libtorch.at(Path.of("/none.so")));
    assertTrue(missing.getMessage().contains("/none.so: there is no such file"), missing::toString);
    Throwable directory =
        assertThrows(LibraryNotFoundException.class, () -> Libtorch.at(Path.of("src")));
    assertTrue(directory.getMessage().contains("argument path: src: "), directory::toString);
  }
}
