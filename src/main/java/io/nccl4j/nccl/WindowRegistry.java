package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.internal.cuda.DeviceMemory;
import io.nccl4j.internal.util.Arguments;
import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Stream;

/** The windows of one communicator. Checks the arguments of windows and puts. */
final class WindowRegistry {
  private final NativeCommunicator communicator;
  private final RegistrationTable registrations;
  // Closed windows are removed by the next lookup.
  private final List<Window> windows = new CopyOnWriteArrayList<>();

  WindowRegistry(RegistrationTable registrations) {
    this.registrations = registrations;
    this.communicator = registrations.communicator();
  }

  NativeCommunicator communicator() {
    return communicator;
  }

  /** Checks that the memory and the options suit a window, and returns the options as a set. */
  Set<WindowOption> checkedOptions(Buffer buffer, WindowOption... options) {
    NcclVersion library = communicator.library();
    library.require("ncclCommWindowRegister");
    Objects.requireNonNull(options, "options");
    Set<WindowOption> set = EnumSet.noneOf(WindowOption.class);
    set.addAll(Arguments.copyOf(Arrays.asList(options), "options"));
    set.forEach(option -> option.require(library));
    registrations.check(buffer);
    if (buffer.memoryType() != Buffer.MemoryType.DEVICE
        || DeviceMemory.allocated(buffer.address())) {
      throw new IllegalArgumentException(
          "buffer is "
              + buffer
              + ", which CUDA cannot share as a window; allocate it with"
              + " NcclBackend.newRegistrableBuffer");
    }
    if (buffer.address() % Window.ALIGNMENT != 0) {
      throw new IllegalArgumentException(
          "buffer is at 0x%x; a window begins at a multiple of %d"
              .formatted(buffer.address(), Window.ALIGNMENT));
    }
    if (set.contains(WindowOption.SYMMETRIC)) {
      checkNoOverlap(buffer);
    }
    return Collections.unmodifiableSet(set);
  }

  private void checkNoOverlap(Buffer buffer) {
    symmetric()
        .filter(window -> window.overlaps(buffer))
        .findFirst()
        .ifPresent(
            window -> {
              throw new IllegalArgumentException(
                  "buffer " + buffer + " is in another symmetric window already: " + window);
            });
  }

  /** Registers checked memory, and waits for the other ranks. */
  Window make(Communicator publicCommunicator, Buffer buffer, Set<WindowOption> options) {
    MemoryHandle handle =
        registrations.register(
            Window.kind(options), buffer, "all ranks to register a window with " + communicator);
    if (handle.handle().address() == 0) {
      registrations.drop(handle);
      throw new WindowsUnsupportedException(communicator.toString());
    }
    Window window = new Window(publicCommunicator, registrations, handle, options);
    windows.add(window);
    return window;
  }

  /** Checks that the memory can be put into that window of the peers. */
  void checkPut(Buffer source, Window window) {
    Objects.requireNonNull(window, "window");
    window.checkOpen("window");
    if (!window.isOf(registrations)) {
      throw new IllegalArgumentException(
          "window is of "
              + window.communicator()
              + "; it must be this rank's own, of "
              + communicator);
    }
    if (!window.options().contains(WindowOption.SYMMETRIC)) {
      throw new IllegalArgumentException("window is " + window + "; it must be a symmetric one");
    }
    if (symmetric().noneMatch(own -> own.contains(source))) {
      throw new IllegalArgumentException(
          "source is " + source + "; it must lie in a symmetric window of " + communicator);
    }
  }

  private Stream<Window> symmetric() {
    windows.removeIf(window -> !window.isOpen());
    return windows.stream().filter(window -> window.options().contains(WindowOption.SYMMETRIC));
  }
}
