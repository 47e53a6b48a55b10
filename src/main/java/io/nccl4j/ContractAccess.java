package io.nccl4j;

import io.nccl4j.spi.BackendDriver;
import io.nccl4j.spi.BackendOperation;
import io.nccl4j.spi.ChildMaker;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.EnqueuedCall;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.FailureDetails;
import io.nccl4j.spi.GraphDriver;
import io.nccl4j.spi.LaunchListener;
import io.nccl4j.spi.StreamContext;
import io.nccl4j.spi.StreamDriver;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;

/** Gives the backends access to the package-private members of this package. */
final class ContractAccess extends Contract {
  private ContractAccess() {}

  static void register() {
    register(new ContractAccess());
  }

  @Override
  public Backend backend(BackendDriver driver) {
    return new Backend(driver);
  }

  @Override
  public BackendDriver driver(Backend backend) {
    return backend.driver();
  }

  @Override
  public void checkOpen(Backend backend) {
    backend.checkOpen();
  }

  @Override
  public void checkMakes(Backend backend, String call) {
    backend.checkMakes(call);
  }

  @Override
  public void checkDevice(Backend backend, int device) {
    backend.checkDevice(device);
  }

  @Override
  public Stream stream(
      DeviceType deviceType, int device, Function<StreamContext, StreamDriver> driver) {
    return new Stream(deviceType, device, driver);
  }

  @Override
  public StreamDriver driver(Stream stream) {
    return stream.driver();
  }

  @Override
  public EventDriver driver(Event event) {
    return event.driver();
  }

  @Override
  public GraphDriver driver(Graph graph) {
    return graph.driver();
  }

  @Override
  public CommunicatorDriver driver(Communicator communicator) {
    return communicator.core().driver();
  }

  @Override
  public void listen(Communicator communicator, LaunchListener listener) {
    communicator.core().listen(listener);
  }

  @Override
  public Communicator unconnected(
      Backend backend,
      List<UniqueId> ids,
      int worldSize,
      int rank,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    return backend.unconnected(ids, worldSize, rank, config, driver);
  }

  @Override
  public Communicator unconnectedJoining(
      Backend backend,
      UniqueId growId,
      int newSize,
      int rank,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    return backend.unconnectedJoining(growId, newSize, rank, config, driver);
  }

  @Override
  public ChildMaker children(Communicator parent) {
    return parent.children();
  }

  @Override
  public Communicator connected(Communicator unconnected, Communicator parent) {
    return unconnected.connectedNowOrWithGroup(parent);
  }

  @Override
  public CompletionStage<Communicator> connectedAsync(Communicator unconnected) {
    return unconnected.connectInBackground();
  }

  @Override
  public NcclException failure(String function, int code, String text, String lastError) {
    return NcclException.of(function, code, text, lastError);
  }

  @Override
  public FailureDetails details(NcclException failure) {
    return failure.details();
  }

  @Override
  public NcclException initDetails(NcclException failure, FailureDetails details) {
    return failure.initDetails(details);
  }

  @Override
  public NcclException copyOf(NcclException first, FailureDetails details) {
    return NcclException.copyOf(first, details);
  }

  @Override
  public Runnable retain(Buffer buffer, String holder) {
    return buffer.retain(holder);
  }

  @Override
  public void submit(
      Communicator communicator, BackendOperation operation, Buffer source, Stream stream) {
    CallLauncher.submit(Call.of(operation, communicator.core(), source, stream));
  }

  @Override
  public List<? extends EnqueuedCall> record(Runnable body) {
    return Group.record(body);
  }
}
