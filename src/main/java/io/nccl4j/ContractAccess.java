package io.nccl4j;

import io.nccl4j.spi.Contract;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.GraphDriver;
import io.nccl4j.spi.StreamContext;
import io.nccl4j.spi.StreamDriver;
import java.util.function.Function;

/** Gives the public classes of backends what this package hides from programs. */
final class ContractAccess extends Contract {
  private ContractAccess() {}

  static void register() {
    register(new ContractAccess());
  }

  @Override
  public Event event(Platform platform, int device, EventDriver driver) {
    return new Event(platform, device, driver);
  }

  @Override
  public EventDriver driver(Event event) {
    return event.driver();
  }

  @Override
  public Stream stream(
      Platform platform, int device, Function<StreamContext, StreamDriver> driver) {
    return new Stream(platform, device, driver);
  }

  @Override
  public StreamDriver driver(Stream stream) {
    return stream.driver();
  }

  @Override
  public GraphDriver driver(Graph graph) {
    return graph.driver();
  }
}
