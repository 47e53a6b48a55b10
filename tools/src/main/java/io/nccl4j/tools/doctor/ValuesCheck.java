package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Checks for values of NCCL's variables that it ignores, misreads or rejects, as of 2.30.7. */
final class ValuesCheck {
  private static final Set<String> LEVELS =
      Set.of("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS");

  /** Variables whose values are words, compared case-insensitively. */
  private static final Map<String, Set<String>> WORDS =
      Map.of(
          "NCCL_DEBUG", Set.of("NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"),
          "NCCL_LAUNCH_MODE", Set.of("PARALLEL", "GROUP"),
          "NCCL_CHECK_MODE", Set.of("DEFAULT", "DEBUG_LOCAL", "DEBUG_GLOBAL"));

  private static final Set<String> SUBSYSTEMS =
      Set.of(
          "INIT",
          "COLL",
          "P2P",
          "SHM",
          "NET",
          "GRAPH",
          "TUNING",
          "ENV",
          "ALLOC",
          "ALLOC_HOST",
          "CALL",
          "PROXY",
          "NVLS",
          "BOOTSTRAP",
          "REG",
          "PROFILE",
          "RAS",
          "DESTROY",
          "ALL");

  private static final Set<String> ALGORITHMS =
      Set.of("TREE", "RING", "COLLNETDIRECT", "COLLNETCHAIN", "NVLS", "NVLSTREE", "PAT");
  private static final Set<String> PROTOCOLS = Set.of("LL", "LL128", "SIMPLE");
  private static final Set<String> FUNCTIONS =
      Set.of("BROADCAST", "REDUCE", "ALLGATHER", "REDUCESCATTER", "ALLREDUCE");

  private static final Set<String> FILES =
      Set.of("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE");

  /** Numeric variables, apart from those that end in _ENABLE or _DISABLE. */
  private static final Set<String> NUMBERS =
      Set.of(
          "NCCL_BUFFSIZE",
          "NCCL_CROSS_NIC",
          "NCCL_IB_GID_INDEX",
          "NCCL_IB_QPS_PER_CONNECTION",
          "NCCL_IB_RETRY_CNT",
          "NCCL_IB_SL",
          "NCCL_IB_TC",
          "NCCL_IB_TIMEOUT",
          "NCCL_MAX_CTAS",
          "NCCL_MAX_NCHANNELS",
          "NCCL_MIN_CTAS",
          "NCCL_MIN_NCHANNELS",
          "NCCL_NET_GDR_READ",
          "NCCL_NSOCKS_PERTHREAD",
          "NCCL_NTHREADS",
          "NCCL_SOCKET_NTHREADS");

  private static final Pattern WHOLE_NUMBER =
      Pattern.compile("[ \\t]*[+-]?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)");
  private static final String IGNORED = "NCCL behaves as if it were not set";

  private ValuesCheck() {}

  static List<Finding> findings(MachineState state) {
    List<Finding> findings = new ArrayList<>();
    for (NcclVariable setting : NcclVariable.all(state.machine())) {
      if (setting.name().startsWith("NCCL_") && !setting.value().isEmpty()) {
        finding(setting, state.machine()).ifPresent(findings::add);
      }
    }
    return findings;
  }

  private static Optional<Finding> finding(NcclVariable setting, Machine machine) {
    String name = setting.name();
    if (WORDS.containsKey(name)) {
      return word(setting, WORDS.get(name));
    }
    if (FILES.contains(name)) {
      return file(setting, machine);
    }
    return switch (name) {
      case "NCCL_DEBUG_SUBSYS" -> subsystems(setting);
      case "NCCL_ALGO" -> list(setting, ALGORITHMS);
      case "NCCL_PROTO" -> list(setting, PROTOCOLS);
      case "NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL" -> level(setting);
      case "NCCL_SOCKET_FAMILY" -> family(setting);
      case "NCCL_DEBUG_FILE" -> folder(setting, machine);
      default -> number(setting);
    };
  }

  private static Optional<Finding> word(NcclVariable setting, Set<String> words) {
    return words.contains(upper(setting.value()))
        ? Optional.empty()
        : Optional.of(
            Finding.warning(
                setting + " is not a valid value", IGNORED, "use one of " + text(words)));
  }

  private static Optional<Finding> level(NcclVariable setting) {
    return LEVELS.contains(setting.value()) || Character.isDigit(setting.value().charAt(0))
        ? Optional.empty()
        : Optional.of(
            Finding.warning(
                setting + " is not a valid value",
                IGNORED,
                "use one of " + text(LEVELS) + ", in capitals"));
  }

  private static Optional<Finding> family(NcclVariable setting) {
    Set<String> families = Set.of("AF_INET", "AF_INET6");
    return families.contains(setting.value())
        ? Optional.empty()
        : Optional.of(
            Finding.warning(
                setting + " is not a valid value",
                IGNORED,
                "use one of " + text(families) + ", in capitals"));
  }

  private static Optional<Finding> subsystems(NcclVariable setting) {
    String list = setting.value().startsWith("^") ? setting.value().substring(1) : setting.value();
    return unknown(list, SUBSYSTEMS)
        .map(
            word ->
                Finding.warning(
                    setting + ": '" + word + "' is unknown",
                    "NCCL ignores the word or, from 2.30 on, the whole list",
                    "use some of " + text(SUBSYSTEMS)));
  }

  /**
   * Checks lists of words per function, such as {@code ring;allreduce:tree,nvls}; {@code ^}
   * excludes the words that follow.
   */
  private static Optional<Finding> list(NcclVariable setting, Set<String> words) {
    String[] parts = setting.value().split(";", -1);
    for (int i = 0; i < parts.length; i++) {
      int colon = parts[i].indexOf(':');
      String list = parts[i].substring(colon + 1);
      if (colon < 0 && i > 0) {
        return Optional.of(rejected(setting, "only the first list may omit its function", words));
      }
      if (colon >= 0 && !FUNCTIONS.contains(upper(parts[i].substring(0, colon)))) {
        return Optional.of(
            rejected(setting, "'" + parts[i].substring(0, colon) + "' is not a function", words));
      }
      Optional<String> unknown = unknown(list.startsWith("^") ? list.substring(1) : list, words);
      if (unknown.isPresent()) {
        return Optional.of(rejected(setting, "'" + unknown.get() + "' is unknown", words));
      }
    }
    return Optional.empty();
  }

  private static Finding rejected(NcclVariable setting, String why, Set<String> words) {
    return Finding.error(
        setting + ": " + why,
        "NCCL 2.24 and later fail to create a communicator; older releases ignore it",
        "use some of " + text(words) + "; for one function: allreduce:ring");
  }

  private static Optional<String> unknown(String list, Set<String> words) {
    for (String word : list.split(",", -1)) {
      if (!word.isBlank() && !words.contains(upper(word.strip()))) {
        return Optional.of(word);
      }
    }
    return Optional.empty();
  }

  private static Optional<Finding> file(NcclVariable setting, Machine machine) {
    return machine.has(setting.value())
        ? Optional.empty()
        : Optional.of(
            Finding.warning(setting + ": no such file", IGNORED, "correct the path or unset it"));
  }

  private static Optional<Finding> folder(NcclVariable setting, Machine machine) {
    int slash = setting.value().lastIndexOf('/');
    return slash <= 0 || machine.has(setting.value().substring(0, slash))
        ? Optional.empty()
        : Optional.of(
            Finding.warning(
                setting + ": no such directory",
                "NCCL cannot open the file and writes its messages to stdout",
                "create the directory, or correct the path"));
  }

  private static Optional<Finding> number(NcclVariable setting) {
    String name = setting.name();
    boolean isNumber =
        NUMBERS.contains(name) || name.endsWith("_ENABLE") || name.endsWith("_DISABLE");
    if (!isNumber) {
      return Optional.empty();
    }
    Matcher start = WHOLE_NUMBER.matcher(setting.value());
    if (start.matches()) {
      return Optional.empty();
    }
    String read = start.lookingAt() ? start.group().strip() : "0";
    return Optional.of(
        Finding.warning(
            setting + " is not a whole number",
            "NCCL reads it as " + read,
            name.endsWith("ABLE") ? "use 1 or 0" : "use a whole number"));
  }

  private static String upper(String text) {
    return text.toUpperCase(Locale.ROOT);
  }

  private static String text(Set<String> words) {
    return String.join(", ", new TreeSet<>(words));
  }
}
