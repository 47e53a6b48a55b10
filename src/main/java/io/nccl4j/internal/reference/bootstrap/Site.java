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
public final class Site extends ListeningEndpoint {
  private static final Site THIS_PROCESS = new Site();

  private final Map<Long, CommunicatorEndpoint> communicators = new ConcurrentHashMap<>();
  private final Map<UniqueId, Doorway> doorways = new HashMap<>();

  /** Makes one of its own, as if it were another process. */
  public Site() {
    this(null);
  }

  /** Makes one of its own, as if it were a process of another host; for tests. */
  public Site(UUID host) {
    super(host);
  }

  public static Site ofThisProcess() {
    return THIS_PROCESS;
  }

  /** Finds the logger only when there is something to say, since most programs never need it. */
  public static Logger log() {
    return LogManager.getLogger(Site.class);
  }

  /** Lets the other processes of a communicator find it. */
  public void enroll(CommunicatorEndpoint communicator) {
    communicators.put(communicator.id(), communicator);
    admitParked();
  }

  public void dismiss(CommunicatorEndpoint communicator) {
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
  Connection.Receiver guest(Connection connection, Secret secret) {
    return new Guest(this, connection, secret);
  }

  /** Lets those in who come by an id. */
  void open(UniqueId id, Doorway doorway) {
    synchronized (doorways) {
      doorways.put(id, doorway);
    }
  }

  void shut(UniqueId id, Doorway doorway) {
    synchronized (doorways) {
      doorways.remove(id, doorway);
    }
  }

  /** Guards {@link #doorway} and what follows from it. */
  Object doors() {
    return doorways;
  }

  /** Returns where those are let in who come by an id, or null. */
  public Doorway doorway(UniqueId id) {
    synchronized (doorways) {
      return doorways.get(id);
    }
  }

  /** Returns how many ids ranks are waiting by; for tests. */
  public int openDoorways() {
    synchronized (doorways) {
      return doorways.size();
    }
  }

  @Override
  List<Doorway> bootstrapTargets() {
    synchronized (doorways) {
      return List.copyOf(doorways.values());
    }
  }
}
