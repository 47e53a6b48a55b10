/**
 * Gradient reduction of data-parallel training: whole parameters on every rank, or one shard of
 * them on each.
 */
module io.nccl4j.training {
  requires transitive io.nccl4j;
  requires static transitive org.jspecify;

  exports io.nccl4j.training;
}
