/**
 * What the examples' command lines have in common: how they end, sizes and the like, and several
 * processes of one command.
 */
module io.nccl4j.examples.quantities {
  requires transitive info.picocli;

  exports io.nccl4j.examples.processes;
  exports io.nccl4j.examples.quantities;
}
