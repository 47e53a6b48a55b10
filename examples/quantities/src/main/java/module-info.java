/** Sizes and the like, as the examples' command lines give them. */
module io.nccl4j.examples.quantities {
  requires transitive info.picocli;

  exports io.nccl4j.examples.quantities;
}
