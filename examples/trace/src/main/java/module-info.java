/** Traces: flight recordings of several ranks, put together as one timeline. */
module io.nccl4j.examples.trace {
  requires com.fasterxml.jackson.core;
  requires info.picocli;
  requires io.nccl4j;
  requires io.nccl4j.examples.quantities;
  requires jdk.jfr;

  opens io.nccl4j.examples.trace to
      info.picocli;
}
