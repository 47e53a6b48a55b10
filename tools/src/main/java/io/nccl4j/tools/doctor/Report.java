package io.nccl4j.tools.doctor;

import java.util.List;
import java.util.Map;

/**
 * What the doctor has to say.
 *
 * @param found what is here, by name
 * @param findings what the checks found, the worst first
 * @param checks the names of all checks that were made
 * @param usable whether a collective can run on NCCL
 * @param verdict the same in one line
 */
record Report(
    Map<String, String> found,
    List<CheckFinding> findings,
    List<String> checks,
    boolean usable,
    String verdict) {

  /** A finding, and the name of the check that found it. */
  record CheckFinding(String check, Finding finding) {}

  /** Returns the exit status that says the same. */
  int status() {
    return usable ? Doctor.OK : Doctor.UNUSABLE;
  }
}
