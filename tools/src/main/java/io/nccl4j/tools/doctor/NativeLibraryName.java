package io.nccl4j.tools.doctor;

import java.util.List;

/** The two native libraries, with their file names, directories and settings. */
enum NativeLibraryName {
  NCCL("nccl"),
  CUDART("cudart");

  private final String label;

  NativeLibraryName(String label) {
    this.label = label;
  }

  /** Returns the short name that nccl4j uses, such as {@code nccl}. */
  String label() {
    return label;
  }

  /** Returns its file names, in search order. */
  List<String> files() {
    return switch (this) {
      case NCCL -> List.of("libnccl.so.2", "libnccl.so");
      case CUDART -> List.of("libcudart.so.13", "libcudart.so.12", "libcudart.so");
    };
  }

  /** Returns its directories in Python packages. */
  List<String> wheelFolders() {
    return switch (this) {
      case NCCL -> List.of("nvidia/nccl/lib");
      case CUDART -> List.of("nvidia/cu13/lib", "nvidia/cuda_runtime/lib");
    };
  }

  /** Returns the system property that names it. */
  String property() {
    return "io.nccl4j." + label + ".library";
  }

  /** Returns the environment variable that names it. */
  String variable() {
    return this == NCCL ? "NCCL4J_NCCL_LIBRARY" : "NCCL4J_CUDART_LIBRARY";
  }

  /** Returns whether a path is a file of this library. */
  boolean matches(String path) {
    return path.substring(path.lastIndexOf('/') + 1).startsWith("lib" + label + ".so");
  }
}
