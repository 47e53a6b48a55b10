package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.UniqueId;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * This process, as a place of ranks that those of other processes can reach: its communicators with
 * ranks elsewhere, and the ids by which ranks are still to come.
 */
public final class ProcessEndpoint extends ListeningEndpoint {
  private static final ProcessEndpoint THIS_PROCESS = new ProcessEndpoint();

  private final Map<Long, CommunicatorEndpoint> communicators = new ConcurrentHashMap<>();
  private final Map<UniqueId, BootstrapTarget> targets = new HashMap<>();

  /** Makes one of its own, as if it were another process. */
  public ProcessEndpoint() {
    this(null);
  }

  /** Makes one of its own, as if it were a process of another host; for tests. */
  public ProcessEndpoint(UUID host) {
    super(host);
  }

  public static ProcessEndpoint ofThisProcess() {
    return THIS_PROCESS;
  }

  /** Finds the logger only when there is something to say, since most programs never need it. */
  public static Logger log() {
    return LogManager.getLogger(ProcessEndpoint.class);
  }

  /** Lets the other processes of a communicator find it. */
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

  /** Lets those in who come by an id. */
  void open(UniqueId id, BootstrapTarget doorway) {
    synchronized (targets) {
      targets.put(id, doorway);
    }
  }

  void close(UniqueId id, BootstrapTarget doorway) {
    synchronized (targets) {
      targets.remove(id, doorway);
    }
  }

  /** Guards {@link #target} and what follows from it. */
  Object targetsLock() {
    return targets;
  }

  /** Returns where those are let in who come by an id, or null. */
  public BootstrapTarget target(UniqueId id) {
    synchronized (targets) {
      return targets.get(id);
    }
  }

  /** Returns how many ids ranks are waiting by; for tests. */
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
