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

/** The checks of a parameter list that need no other rank. */
final class ParameterChecks {
  /** A memory range and its name in messages. */
  private record Range(String name, long first, long end) {}

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
   * Checks that there are parameters, and that each has a type that can be reduced, a unique name,
   * and memory on this rank's device that overlaps with no other.
   *
   * @return a copy of the list
   */
  static List<Parameter> checked(List<Parameter> parameters, Communicator communicator) {
    List<Parameter> copy = Arguments.copyOf(parameters, "parameters");
    if (copy.isEmpty()) {
      throw new IllegalArgumentException("parameters is empty; a reducer needs at least one");
    }
    ParameterChecks checks = new ParameterChecks(communicator);
    copy.forEach(checks::add);
    checks.checkNoOverlap();
    return copy;
  }

  private void add(Parameter parameter) {
    String name = parameter.name();
    if (!names.add(name)) {
      throw new IllegalArgumentException(
          "there are two parameters '" + name + "'; names must be unique");
    }
    if (parameter.value().type().float8() && !reducesFloat8) {
      throw new IllegalArgumentException(
          "parameter '%s' has type %s; the library or a device here cannot reduce float8"
              .formatted(name, parameter.value().type()));
    }
    add(parameter.value(), "the value of '" + name + "'");
    parameter.gradient().ifPresent(gradient -> add(gradient, "the gradient of '" + name + "'"));
  }

  private void add(Buffer buffer, String name) {
    if (!buffer.isOpen()) {
      throw new IllegalStateException(name + " is closed: " + buffer);
    }
    if (buffer.memoryType().deviceType() != deviceType
        || (buffer.device() != device && buffer.device() != Buffer.ANY_DEVICE)) {
      throw new IllegalArgumentException(
          "%s is %s; it must be usable on this rank's device, %s device %d"
              .formatted(name, buffer, deviceType, device));
    }
    if (buffer.count() > 0) {
      ranges.add(new Range(name, buffer.address(), buffer.address() + buffer.byteSize()));
    }
  }

  private void checkNoOverlap() {
    ranges.sort(Comparator.comparingLong(Range::first));
    for (int i = 1; i < ranges.size(); i++) {
      Range before = ranges.get(i - 1);
      Range range = ranges.get(i);
      if (range.first() < before.end()) {
        throw new IllegalArgumentException(
            "%s and %s share memory; register shared parameters once"
                .formatted(before.name(), range.name()));
      }
    }
  }
}
