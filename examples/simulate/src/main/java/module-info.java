/** Predicts the time of an all-reduce on machines that are not there. */
module io.nccl4j.examples.simulate {
  requires com.fasterxml.jackson.core;
  requires info.picocli;
  requires io.nccl4j;
  requires io.nccl4j.examples.plots;
  requires io.nccl4j.examples.quantities;

  opens io.nccl4j.examples.simulate to
      info.picocli;
}
