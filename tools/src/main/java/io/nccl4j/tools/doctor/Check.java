package io.nccl4j.tools.doctor;

import java.util.List;
import java.util.function.Function;

/**
 * One check of the machine. A check leaves nothing changed and does not block.
 *
 * @param name its name, as reports print it
 * @param findings returns the problems found; empty if there are none
 */
record Check(String name, Function<MachineState, List<Finding>> findings) {}
