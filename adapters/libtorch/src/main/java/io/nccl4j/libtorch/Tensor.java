package io.nccl4j.libtorch;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceType;
import java.util.Arrays;
import java.util.OptionalInt;

/**
 * The properties of a tensor, and the checks that a collective may use it. All checks precede any
 * use of the tensor's address.
 */
final class Tensor {
  private static final String LAYOUT = "aoti_torch_layout_";

  private final Shim shim;
  private final long handle;
  private final String name;

  /**
   * @param handle the address of the {@code at::Tensor}; not 0
   * @param name the tensor's name in messages
   */
  Tensor(Shim shim, long handle, String name) {
    this.shim = shim;
    this.handle = handle;
    this.name = name;
  }

  long count() {
    return shim.getLong("aoti_torch_get_numel", handle);
  }

  long dataAddress() {
    return shim.getLong("aoti_torch_get_data_ptr", handle);
  }

  private long[] array(String function) {
    return shim.getArray(function, handle, shim.getLong("aoti_torch_get_dim", handle));
  }

  /** Throws if the tensor is undefined. */
  void checkDefined() {
    if (hasIsDefined() && !shim.getBoolean("aoti_torch_is_defined", handle)) {
      throw rejected("is undefined; it must have a shape and a type");
    }
  }

  /** Older libtorch lacks the function; there an undefined tensor has an unknown type code. */
  private boolean hasIsDefined() {
    return shim.has("aoti_torch_is_defined");
  }

  /** Returns the element type; throws if NCCL lacks it. */
  DataType dataType() {
    int code = shim.getInt("aoti_torch_get_dtype", handle);
    for (ScalarType type : ScalarType.values()) {
      if (isCode(code, type)) {
        return type.dataType().orElseThrow(() -> rejected(unsupportedType(type.label())));
      }
    }
    throw rejected(unsupportedType("number " + code + " (as undefined tensors have)"));
  }

  private static String unsupportedType(String type) {
    return "has the element type " + type + ", which NCCL does not have; convert it first";
  }

  private boolean isCode(int code, ScalarType type) {
    return type.number().isPresent()
        // The code of undefined tensors has been each of the highest in turn.
        ? hasIsDefined() && type.number().getAsInt() == code
        : isCode(code, type.codeFunction());
  }

  private boolean isCode(int code, String function) {
    OptionalInt known = shim.code(function);
    return known.isPresent() && known.getAsInt() == code;
  }

  /** Throws unless the elements are contiguous in row-major order. */
  void checkContiguous() {
    checkStrided();
    long[] sizes = array("aoti_torch_get_sizes");
    long[] strides = array("aoti_torch_get_strides");
    long expected = 1;
    for (int dim = sizes.length - 1; dim >= 0 && count() > 0; dim--) {
      if (sizes[dim] != 1 && strides[dim] != expected) {
        throw rejected(
            "has sizes %s and strides %s; it must be contiguous, as after contiguous()"
                .formatted(Arrays.toString(sizes), Arrays.toString(strides)));
      }
      expected *= sizes[dim];
    }
  }

  private void checkStrided() {
    // Older libtorch lacks the function; there reading the strides of a sparse tensor fails.
    if (shim.has("aoti_torch_get_layout")) {
      int layout = shim.getInt("aoti_torch_get_layout", handle);
      if (!isCode(layout, LAYOUT + "strided")) {
        throw rejected(
            "has the layout " + layout(layout) + "; it must be strided, as after to_dense()");
      }
    }
  }

  private String layout(int code) {
    for (String known :
        new String[] {
          "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn"
        }) {
      if (isCode(code, LAYOUT + known)) {
        return known;
      }
    }
    return "number " + code;
  }

  /** Throws unless the tensor is on the communicator's device. */
  void checkDevice(Communicator comm) {
    int type = shim.getInt("aoti_torch_get_device_type", handle);
    int index = shim.getInt("aoti_torch_get_device_index", handle);
    boolean cuda = comm.backend().deviceType() == DeviceType.CUDA;
    boolean fits =
        cuda
            ? isCode(type, "aoti_torch_device_type_cuda") && index == comm.device()
            : isCode(type, "aoti_torch_device_type_cpu");
    if (!fits) {
      throw rejected(
          "is on device %s; %s needs it on %s"
              .formatted(device(type, index), comm, cuda ? "cuda:" + comm.device() : "cpu"));
    }
  }

  private String device(int type, int index) {
    for (String known : new String[] {"cpu", "cuda", "meta", "mps", "xpu", "privateuse1"}) {
      if (isCode(type, "aoti_torch_device_type_" + known)) {
        return known + (known.equals("cpu") || known.equals("meta") ? "" : ":" + index);
      }
    }
    return "number " + index + " of type number " + type;
  }

  private IllegalArgumentException rejected(String reason) {
    return new IllegalArgumentException("tensor " + name + " " + reason);
  }
}
