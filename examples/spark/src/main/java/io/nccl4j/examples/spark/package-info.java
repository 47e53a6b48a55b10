/**
 * Ranks as the tasks of a barrier stage of Apache Spark, and a least-squares fit with them.
 *
 * <p>For other programs: {@link io.nccl4j.examples.spark.BarrierStage} runs a {@link
 * io.nccl4j.examples.spark.RankProgram} in each task, with a communicator. The rest is the example.
 */
package io.nccl4j.examples.spark;
