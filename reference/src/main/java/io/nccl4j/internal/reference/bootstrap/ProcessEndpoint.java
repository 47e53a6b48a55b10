package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.Loggers;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.logging.log4j.Logger;

/**
 * The endpoint by which other processes reach the ranks of this one: its communicators with ranks
 * in other processes, and the ids by which ranks have yet to join.
 */
public final class ProcessEndpoint extends ListeningEndpoint {
  private static final ProcessEndpoint THIS_PROCESS = new ProcessEndpoint();

  private final Map<Long, CommunicatorEndpoint> communicators = new ConcurrentHashMap<>();
  private final Map<UniqueId, BootstrapTarget> targets = new HashMap<>();

  /** Creates an endpoint that behaves like that of another process. */
  public ProcessEndpoint() {
    this(null);
  }

  /** Creates an endpoint that behaves like that of a process of another host; for tests. */
  public ProcessEndpoint(UUID host) {
    super(host);
  }

  public static ProcessEndpoint ofThisProcess() {
    return THIS_PROCESS;
  }

  /** Looks the logger up on use, since most programs never need it. */
  public static Logger log() {
    return Loggers.of(ProcessEndpoint.class);
  }

  /** Makes a communicator reachable for its other processes. */
  public void register(CommunicatorEndpoint communicator) {
    communicators.put(communicator.id(), communicator);
    admitParked();
  }

  public void unregister(CommunicatorEndpoint communicator) {
    communicators.remove(communicator.id());
  }

  @Override
  CommunicatorEndpoint communicator(long id) {
    return communicators.get(id);
  }

  @Override
  List<CommunicatorEndpoint> communicators() {
    return List.copyOf(communicators.values());
  }

  @Override
  Connection.Receiver joiningProcess(Connection connection, Secret secret) {
    return new JoiningProcess(this, connection, secret);
  }

  /** Admits ranks that join by an id. */
  void open(UniqueId id, BootstrapTarget target) {
    synchronized (targets) {
      targets.put(id, target);
    }
  }

  void close(UniqueId id, BootstrapTarget target) {
    synchronized (targets) {
      targets.remove(id, target);
    }
  }

  /** Returns the lock that makes a decision based on {@link #target} atomic. */
  Object targetsLock() {
    return targets;
  }

  /** Returns the bootstrap target of an id, or null. */
  public BootstrapTarget target(UniqueId id) {
    synchronized (targets) {
      return targets.get(id);
    }
  }

  /** Returns the number of ids with waiting ranks; for tests. */
  public int openTargets() {
    synchronized (targets) {
      return targets.size();
    }
  }

  @Override
  List<BootstrapTarget> bootstrapTargets() {
    synchronized (targets) {
      return List.copyOf(targets.values());
    }
  }
}
