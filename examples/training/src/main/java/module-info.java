/** Data-parallel training with PyTorch in Java: one rank per process, on GPUs and without. */
module io.nccl4j.examples.training {
  requires info.picocli;
  requires io.nccl4j;
  requires io.nccl4j.examples.quantities;
  requires io.nccl4j.pytorch;
  requires jdk.jfr;
  requires org.bytedeco.pytorch;

  opens io.nccl4j.examples.training to
      info.picocli;
}
