package io.nccl4j.tools.doctor;

import io.nccl4j.tools.cli.Commands;
import java.util.List;
import java.util.Map;

/**
 * The result of all checks.
 *
 * @param found the libraries, driver, GPUs and so on of this machine, by name
 * @param findings the findings of all checks, most severe first
 * @param checks the names of the checks that ran
 * @param usable whether a collective can run on NCCL
 * @param verdict the conclusion, in one line
 */
record Report(
    Map<String, String> found,
    List<CheckFinding> findings,
    List<String> checks,
    boolean usable,
    String verdict) {

  /** A finding and the name of its check. */
  record CheckFinding(String check, Finding finding) {}

  /** Returns the exit status for this report. */
  int status() {
    return usable ? Commands.OK : Commands.FAILED;
  }
}
