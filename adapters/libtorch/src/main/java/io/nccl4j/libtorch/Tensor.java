package io.nccl4j.libtorch;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceType;
import java.util.Arrays;
import java.util.OptionalInt;

/**
 * What libtorch says of a tensor, read once, and whether a collective may use it: everything is
 * checked before anybody takes the address.
 */
final class Tensor {
  private static final String LAYOUT = "aoti_torch_layout_";

  private final Shim shim;
  private final long handle;
  private final String name;

  /**
   * @param handle the address of the {@code at::Tensor}; not 0
   * @param name what the user calls it
   */
  Tensor(Shim shim, long handle, String name) {
    this.shim = shim;
    this.handle = handle;
    this.name = name;
  }

  long count() {
    return shim.askLong("aoti_torch_get_numel", handle);
  }

  long dataAddress() {
    return shim.askLong("aoti_torch_get_data_ptr", handle);
  }

  private long[] array(String function) {
    return shim.askArray(function, handle, shim.askLong("aoti_torch_get_dim", handle));
  }

  /** Throws unless there is anything to ask about. */
  void checkDefined() {
    if (tellsUndefined() && !shim.askTruth("aoti_torch_is_defined", handle)) {
      throw refused("is undefined; it must have a shape and a type");
    }
  }

  /** Older libtorch does not; there the type of an undefined tensor is an unknown number. */
  private boolean tellsUndefined() {
    return shim.has("aoti_torch_is_defined");
  }

  /** Returns the elements' type, if NCCL has it. */
  DataType dataType() {
    int code = shim.askInt("aoti_torch_get_dtype", handle);
    for (ScalarType type : ScalarType.values()) {
      if (isCode(code, type)) {
        return type.dataType().orElseThrow(() -> refused(withoutType(type.label())));
      }
    }
    throw refused(withoutType("number " + code + " (an undefined tensor has such a one)"));
  }

  private static String withoutType(String type) {
    return "has the element type " + type + ", which NCCL does not have; convert it first";
  }

  private boolean isCode(int code, ScalarType type) {
    return type.number().isPresent()
        // An undefined tensor's number has been each of the highest.
        ? tellsUndefined() && type.number().getAsInt() == code
        : isCode(code, type.codeFunction());
  }

  private boolean isCode(int code, String function) {
    OptionalInt known = shim.code(function);
    return known.isPresent() && known.getAsInt() == code;
  }

  /** Throws unless the elements lie one after another, in row-major order. */
  void checkContiguous() {
    checkStrided();
    long[] sizes = array("aoti_torch_get_sizes");
    long[] strides = array("aoti_torch_get_strides");
    long expected = 1;
    for (int dim = sizes.length - 1; dim >= 0 && count() > 0; dim--) {
      if (sizes[dim] != 1 && strides[dim] != expected) {
        throw refused(
            "has sizes %s and strides %s; its elements must lie one after another, as after contiguous()"
                .formatted(Arrays.toString(sizes), Arrays.toString(strides)));
      }
      expected *= sizes[dim];
    }
  }

  private void checkStrided() {
    // Older libtorch lacks it; there a sparse tensor fails to tell its strides.
    if (shim.has("aoti_torch_get_layout")) {
      int layout = shim.askInt("aoti_torch_get_layout", handle);
      if (!isCode(layout, LAYOUT + "strided")) {
        throw refused(
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

  /** Throws unless the elements lie where the communicator's rank works. */
  void checkDevice(Communicator comm) {
    int type = shim.askInt("aoti_torch_get_device_type", handle);
    int index = shim.askInt("aoti_torch_get_device_index", handle);
    boolean cuda = comm.backend().deviceType() == DeviceType.CUDA;
    boolean fits =
        cuda
            ? isCode(type, "aoti_torch_device_type_cuda") && index == comm.device()
            : isCode(type, "aoti_torch_device_type_cpu");
    if (!fits) {
      throw refused(
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

  private IllegalArgumentException refused(String why) {
    return new IllegalArgumentException("tensor " + name + " " + why);
  }
}
