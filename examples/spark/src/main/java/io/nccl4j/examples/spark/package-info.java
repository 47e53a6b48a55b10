/**
 * Runs ranks as the tasks of an Apache Spark barrier stage; the example is a least-squares fit.
 *
 * <p>Other programs can reuse {@link io.nccl4j.examples.spark.BarrierStage}, which runs a {@link
 * io.nccl4j.examples.spark.RankProgram} with a communicator in each task. The rest is the example.
 */
package io.nccl4j.examples.spark;
