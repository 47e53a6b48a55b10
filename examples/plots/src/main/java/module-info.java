/** Charts as pictures and as pages. */
// XChart and VectorGraphics2D are automatic modules.
@SuppressWarnings("requires-automatic")
module io.nccl4j.examples.plots {
  requires com.fasterxml.jackson.core;
  requires java.desktop;
  requires org.knowm.xchart;
  requires VectorGraphics2D;

  exports io.nccl4j.examples.plots;
}
