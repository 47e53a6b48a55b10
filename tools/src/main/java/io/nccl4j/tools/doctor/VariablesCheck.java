package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * Checks for variables that nothing reads. The names that NCCL reads are taken from the constants
 * of the libnccl file in use, so they match its release.
 */
final class VariablesCheck {
  /** The variables that nccl4j reads, without those of its own tests. */
  static final Set<String> OWN =
      Set.of(
          "NCCL4J_NCCL_LIBRARY",
          "NCCL4J_NCCL_CHOICES",
          "NCCL4J_NCCL_LOG",
          "NCCL4J_PENDING_CONNECTIONS",
          "NCCL4J_PORTS",
          "NCCL4J_CUDART_LIBRARY",
          "NCCL4J_FLIGHT_DIR",
          "NCCL4J_FLIGHT_FRAMES",
          "NCCL4J_FLIGHT_RECORDS",
          "NCCL4J_RANK",
          "NCCL4J_WORLD_SIZE",
          "NCCL4J_LOCAL_RANK",
          "NCCL4J_LOCAL_WORLD_SIZE",
          "NCCL4J_RENDEZVOUS",
          "NCCL4J_RUN_ID",
          "NCCL4J_SECRET",
          "NCCL4J_SECRET_FILE",
          "NCCL4J_SOCKET_INTERFACE");

  /** Variables that builds, images and benchmarks use and NCCL does not read. */
  private static final Set<String> NOT_NCCL =
      Set.of(
          "NCCL_VERSION",
          "NCCL_HOME",
          "NCCL_ROOT",
          "NCCL_ROOT_DIR",
          "NCCL_DIR",
          "NCCL_LIB_DIR",
          "NCCL_INCLUDE_DIR",
          "NCCL_LIBRARY",
          "NCCL_LIBRARY_PATH");

  /** The beginnings of the names that only nccl4j's own tests read. */
  private static final Pattern OF_TESTS = Pattern.compile("NCCL4J_(STANDIN|EMULATED)_.*");

  private static final Set<String> OTHER_LIBRARIES =
      Set.of("CCL", "RCCL", "MSCCL", "HCCL", "MCCL", "XCCL", "ECCL", "UCCL", "PCCL");

  /** Names in every release; a file without them keeps its constants in another section. */
  private static final Set<String> IN_EVERY_RELEASE = Set.of("NCCL_DEBUG", "NCCL_SOCKET_IFNAME");

  private VariablesCheck() {}

  static List<Finding> findings(MachineState state) {
    List<Finding> findings = new ArrayList<>();
    List<NcclVariable> settings = NcclVariable.all(state.machine());
    for (NcclVariable setting : settings) {
      own(setting).ifPresent(findings::add);
    }
    Set<String> known = state.nccl().map(LibraryFile::variables).orElse(Set.of());
    if (!known.containsAll(IN_EVERY_RELEASE)) {
      if (settings.stream().anyMatch(each -> each.name().startsWith("NCCL_"))) {
        findings.add(namesUnchecked(state));
      }
      return findings;
    }
    String release = "NCCL " + state.ncclVersion().orElse("of this release");
    for (NcclVariable setting : settings) {
      finding(setting, known, release).ifPresent(findings::add);
    }
    return findings;
  }

  private static Finding namesUnchecked(MachineState state) {
    return Finding.unchecked(
        "the names of NCCL_ variables",
        state.nccl().isEmpty()
            ? "no libnccl was found, so the names that it reads are unknown"
            : "the libnccl that was found does not contain their names, as NVIDIA's does",
        "run nccl4j doctor again with NVIDIA's libnccl");
  }

  private static Optional<Finding> own(NcclVariable setting) {
    String name = setting.name();
    if (!name.startsWith("NCCL4J_") || OF_TESTS.matcher(name).matches() || OWN.contains(name)) {
      return Optional.empty();
    }
    return Optional.of(
        Finding.warning(
            name + " is not a variable of nccl4j" + suggestion(name, OWN),
            "nothing reads it",
            "correct or unset it"));
  }

  private static Optional<Finding> finding(
      NcclVariable setting, Set<String> known, String release) {
    String name = setting.name();
    if (known.contains(name) || NOT_NCCL.contains(name)) {
      return Optional.empty();
    }
    String where = setting.inEnvironment() ? "" : " (in " + setting.source() + ")";
    if (name.startsWith("NCCL_") && !name.startsWith("NCCL_TESTS_")) {
      return Optional.of(
          Finding.warning(
              name + where + " is not known to " + release + suggestion(name, known),
              "NCCL ignores it without a message; a plugin may read it",
              "correct or unset it"));
    }
    return intendedName(name, known)
        .map(
            right ->
                Finding.warning(
                    name + where + " looks like " + right,
                    "NCCL reads only the exact name, in capitals",
                    "rename or unset it"));
  }

  private static String suggestion(String name, Set<String> known) {
    return Spelling.nearest(name, known).map(near -> "; did you mean " + near + "?").orElse("");
  }

  /** Returns the known name that a name with a wrong prefix or wrong case stands for. */
  private static Optional<String> intendedName(String name, Set<String> known) {
    String stripped = name.strip().toUpperCase(Locale.ROOT);
    if (known.contains(stripped)) {
      return Optional.of(stripped);
    }
    int underscore = stripped.indexOf('_');
    if (underscore < 0 || OTHER_LIBRARIES.contains(stripped.substring(0, underscore))) {
      return Optional.empty();
    }
    String right = "NCCL" + stripped.substring(underscore);
    boolean near = Spelling.distance(stripped.substring(0, underscore), "NCCL") == 1;
    return near && known.contains(right) ? Optional.of(right) : Optional.empty();
  }
}
