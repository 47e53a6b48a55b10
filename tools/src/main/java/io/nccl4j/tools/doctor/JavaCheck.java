package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;

/** Checks the Java release, and whether nccl4j may call native code. */
final class JavaCheck {
  private static final Runtime.Version OLDEST = Runtime.Version.parse("25.0.3");

  private JavaCheck() {}

  static List<Finding> findings(MachineState state) {
    List<Finding> findings = new ArrayList<>();
    Runtime.Version java = state.machine().java();
    if (java.compareToIgnoreOptional(OLDEST) < 0) {
      findings.add(
          Finding.warning(
              "Java is " + java + ", older than " + OLDEST,
              "the G1 collector may move an array while native code uses it (JDK-8377811)",
              "install Java " + OLDEST + " or later"));
    }
    if (!state.machine().nativeAccess()) {
      findings.add(
          Finding.warning(
              "Java was started without native access for nccl4j",
              "Java prints a warning; with --illegal-native-access=deny, or in a later Java, the"
                  + " NCCL backend fails",
              "start Java with --enable-native-access=io.nccl4j (ALL-UNNAMED if nccl4j is on the"
                  + " class path)"));
    }
    return findings;
  }
}
