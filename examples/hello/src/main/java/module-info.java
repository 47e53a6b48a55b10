/** The smallest program on nccl4j. */
module io.nccl4j.examples.hello {
  requires io.nccl4j;
}
