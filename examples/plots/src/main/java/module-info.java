/** Charts as pictures and as pages. */
// JFreeChart and VectorGraphics2D are automatic modules.
@SuppressWarnings("requires-automatic")
module io.nccl4j.examples.plots {
  requires com.fasterxml.jackson.core;
  requires io.nccl4j.examples.quantities;
  requires java.desktop;
  requires org.jfree.jfreechart;
  requires VectorGraphics2D;

  exports io.nccl4j.examples.plots;
}
