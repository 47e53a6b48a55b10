package io.nccl4j.tools.perf.sweep;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * One way to carry out a collective.
 *
 * @param algorithm the algorithm, or null where the choice is left to the backend
 * @param protocol NCCL's protocol, or null where there is none to choose
 */
record SweepChoice(Algorithm algorithm, Protocol protocol) {
  /** What the backend chooses by itself. */
  static final SweepChoice AUTO = new SweepChoice(null, null);

  /** Returns all choices but the automatic one. */
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

  /** Returns whether the choice is left to the backend. */
  boolean automatic() {
    return algorithm == null;
  }

  /** Returns what it is called in tables. */
  String name() {
    return automatic()
        ? "auto"
        : protocol == null ? algorithm.label() : algorithm.nccl() + " " + protocol.nccl();
  }

  /** Returns what makes NCCL take it; without, what makes NCCL choose by itself. */
  Map<String, String> environment() {
    return protocol == null
        ? Map.of()
        : Map.of("NCCL_ALGO", algorithm.nccl(), "NCCL_PROTO", protocol.nccl());
  }

  /** Returns what makes the reference take it. */
  List<String> arguments() {
    return automatic() || protocol != null ? List.of() : List.of("--algo", algorithm.label());
  }
}
