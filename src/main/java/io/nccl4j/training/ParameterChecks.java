package io.nccl4j.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DeviceType;
import io.nccl4j.Feature;
import io.nccl4j.internal.util.Arguments;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** The checks of a list of parameters that one rank can make by itself. */
final class ParameterChecks {
  /** A run of memory and what it is called in messages. */
  private record Range(String what, long first, long end) {}

  private final DeviceType deviceType;
  private final int device;
  private final boolean reducesFloat8;
  private final Set<String> names = new HashSet<>();
  private final List<Range> ranges = new ArrayList<>();

  private ParameterChecks(Communicator communicator) {
    this.deviceType = communicator.backend().deviceType();
    this.device = communicator.device();
    this.reducesFloat8 = communicator.backend().supports(Feature.FLOAT8_REDUCTION);
  }

  /**
   * Checks that there are parameters, each of a type that can be reduced, with a name of its own,
   * on this rank's device, in memory that no other has a part of.
   *
   * @return a copy of the list
   */
  static List<Parameter> checked(List<Parameter> parameters, Communicator communicator) {
    List<Parameter> copy = Arguments.copyOf(parameters, "parameters");
    if (copy.isEmpty()) {
      throw new IllegalArgumentException("parameters is empty; a reducer needs at least one");
    }
    ParameterChecks registration = new ParameterChecks(communicator);
    copy.forEach(registration::add);
    registration.checkApart();
    return copy;
  }

  private void add(Parameter parameter) {
    String name = parameter.name();
    if (!names.add(name)) {
      throw new IllegalArgumentException(
          "there are two parameters '" + name + "'; each needs a name of its own");
    }
    if (parameter.value().type().float8() && !reducesFloat8) {
      throw new IllegalArgumentException(
          "parameter '%s' has type %s; the library or a device at hand cannot reduce float8"
              .formatted(name, parameter.value().type()));
    }
    add(parameter.value(), "the value of '" + name + "'");
    parameter.gradient().ifPresent(given -> add(given, "the gradient of '" + name + "'"));
  }

  private void add(Buffer buffer, String what) {
    if (!buffer.isOpen()) {
      throw new IllegalStateException(what + " is closed: " + buffer);
    }
    if (buffer.memoryType().deviceType() != deviceType
        || (buffer.device() != device && buffer.device() != Buffer.ANY_DEVICE)) {
      throw new IllegalArgumentException(
          "%s is %s; it must be usable on this rank's device, %s device %d"
              .formatted(what, buffer, deviceType, device));
    }
    if (buffer.count() > 0) {
      ranges.add(new Range(what, buffer.address(), buffer.address() + buffer.byteSize()));
    }
  }

  private void checkApart() {
    ranges.sort(Comparator.comparingLong(Range::first));
    for (int i = 1; i < ranges.size(); i++) {
      Range before = ranges.get(i - 1);
      Range range = ranges.get(i);
      if (range.first() < before.end()) {
        throw new IllegalArgumentException(
            "%s and %s share memory; register shared parameters once"
                .formatted(before.what(), range.what()));
      }
    }
  }
}
