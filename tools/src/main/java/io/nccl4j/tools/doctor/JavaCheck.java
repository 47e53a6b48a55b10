package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;

/** The Java that runs: its release, and whether it lets nccl4j call native code. */
final class JavaCheck implements Check {
  private static final Runtime.Version OLDEST = Runtime.Version.parse("25.0.3");

  @Override
  public String name() {
    return "java";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    List<Finding> findings = new ArrayList<>();
    Runtime.Version java = evidence.machine().java();
    if (java.compareToIgnoreOptional(OLDEST) < 0) {
      findings.add(
          Finding.warning(
              "Java is " + java + ", older than " + OLDEST,
              "its G1 collector may move an array while native code uses it (JDK-8377811)",
              "install Java " + OLDEST + " or later"));
    }
    if (!evidence.machine().nativeAccess()) {
      findings.add(
          Finding.warning(
              "Java was started without native access for nccl4j",
              "the NCCL backend works with a warning of Java's, and not at all with"
                  + " --illegal-native-access=deny or in a later Java",
              "start Java with --enable-native-access=io.nccl4j (ALL-UNNAMED where nccl4j is on the"
                  + " class path)"));
    }
    return findings;
  }
}
