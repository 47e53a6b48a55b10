package io.nccl4j;

import io.nccl4j.spi.Contract;
import io.nccl4j.spi.EventDriver;

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
}
