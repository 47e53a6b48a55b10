package io.nccl4j.tools.perf.sweep;

import io.nccl4j.plugin.NcclProtocol;
import io.nccl4j.tools.perf.Algorithm;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * An algorithm and a protocol for a collective.
 *
 * @param algorithm the algorithm
 * @param protocol NCCL's protocol, or null if the backend chooses or has none
 */
record SweepChoice(Algorithm algorithm, NcclProtocol protocol) {
  /** The backend's own choice. */
  static final SweepChoice AUTO = new SweepChoice(Algorithm.AUTO, null);

  /** Returns all choices except the automatic one. */
  static List<SweepChoice> all(
      String backend, List<Algorithm> algorithms, List<NcclProtocol> protocols) {
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

  /** Returns its name in tables. */
  String name() {
    return protocol == null ? algorithm.label() : algorithm.label() + " " + protocolLabel();
  }

  /** Returns the protocol's name on the command line, or an empty string. */
  String protocolLabel() {
    return protocol == null ? "" : protocol.name().toLowerCase(Locale.ROOT);
  }

  /** Returns the arguments of the bandwidth command that force this choice. */
  List<String> arguments() {
    List<String> arguments = new ArrayList<>(List.of("--algo", algorithm.label()));
    if (protocol != null) {
      arguments.addAll(List.of("--proto", protocolLabel()));
    }
    return arguments;
  }
}
