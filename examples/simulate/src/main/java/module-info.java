/** Predicts the time of an all-reduce on machines that are not there. */
// XChart is an automatic module.
@SuppressWarnings("requires-automatic")
module io.nccl4j.examples.simulate {
  requires com.fasterxml.jackson.core;
  requires info.picocli;
  requires io.nccl4j;
  requires io.nccl4j.examples.quantities;
  requires java.desktop;
  requires org.knowm.xchart;
  requires VectorGraphics2D;

  opens io.nccl4j.examples.simulate to
      info.picocli;
}
