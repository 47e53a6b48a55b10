/**
 * {@code scripts/simulate}: how long an all-reduce would take on a cluster that is not there.
 *
 * <p>A {@code Model} asks an {@code io.nccl4j.schedule.Schedule}, which is what the reference
 * backend executes, what each link has to carry, and a {@code Shape} which of its paths is the
 * longest; a {@code Network} says what that costs. {@code Crossover} and {@code RankSweep} compare
 * such estimates, {@code TextReport}, {@code JsonReport} and {@code Plot} show them.
 */
package io.nccl4j.tools.simulate;
