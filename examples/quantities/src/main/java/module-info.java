/** Sizes and the like, as the examples' command lines give them. */
module io.nccl4j.examples.quantities {
  exports io.nccl4j.examples.quantities;
}
