/** The bandwidth command: the flags and the lines of nccl-tests, on any backend of nccl4j. */
module io.nccl4j.examples.perf {
  requires com.fasterxml.jackson.core;
  requires info.picocli;
  requires io.nccl4j;
  requires io.nccl4j.examples.plots;
  requires io.nccl4j.examples.quantities;
  requires jdk.jfr;
  requires org.apache.logging.log4j;

  opens io.nccl4j.examples.perf to
      info.picocli;
  opens io.nccl4j.examples.perf.sweep to
      info.picocli;
  opens io.nccl4j.examples.perf.report to
      info.picocli;
}
