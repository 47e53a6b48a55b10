/** Explains an all-reduce: which rank sends what to whom, step by step. */
module io.nccl4j.examples.explain {
  requires com.fasterxml.jackson.core;
  requires info.picocli;
  requires io.nccl4j;
  requires io.nccl4j.examples.quantities;

  opens io.nccl4j.examples.explain to
      info.picocli;
}
