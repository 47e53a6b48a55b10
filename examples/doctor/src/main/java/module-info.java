/** The doctor: says whether a collective can run here, and if not, why and what to do. */
module io.nccl4j.examples.doctor {
  requires com.fasterxml.jackson.core;
  requires info.picocli;
  requires io.nccl4j;

  opens io.nccl4j.examples.doctor to
      info.picocli;
}
