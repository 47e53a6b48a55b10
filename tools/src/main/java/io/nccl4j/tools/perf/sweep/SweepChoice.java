package io.nccl4j.tools.perf.sweep;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * An algorithm and a protocol for a collective.
 *
 * @param algorithm the algorithm, or null if the backend chooses
 * @param protocol NCCL's protocol, or null if the backend chooses or has none
 */
record SweepChoice(Algorithm algorithm, Protocol protocol) {
  /** The backend's own choice. */
  static final SweepChoice AUTO = new SweepChoice(null, null);

  /** Returns all choices except the automatic one. */
  static List<SweepChoice> all(
      String backend, List<Algorithm> algorithms, List<Protocol> protocols) {
    List<SweepChoice> choices = new ArrayList<>();
    for (Algorithm algorithm : algorithms) {
      if (backend.equals("reference")) {
        choices.add(new SweepChoice(algorithm, null));
      } else {
        protocols.forEach(protocol -> choices.add(new SweepChoice(algorithm, protocol)));
      }
    }
    return choices;
  }

  /** Returns whether the backend chooses. */
  boolean automatic() {
    return algorithm == null;
  }

  /** Returns its name in tables. */
  String name() {
    return automatic()
        ? "auto"
        : protocol == null ? algorithm.label() : algorithm.nccl() + " " + protocol.nccl();
  }

  /** Returns the variables that force this choice on NCCL; empty if they do not apply. */
  Map<String, String> environment() {
    return protocol == null
        ? Map.of()
        : Map.of("NCCL_ALGO", algorithm.nccl(), "NCCL_PROTO", protocol.nccl());
  }

  /** Returns the arguments that force this choice on the reference backend; may be empty. */
  List<String> arguments() {
    return automatic() || protocol != null ? List.of() : List.of("--algo", algorithm.label());
  }
}
