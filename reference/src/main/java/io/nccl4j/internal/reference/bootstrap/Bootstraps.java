package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclException;
import java.net.ProtocolException;
import java.util.BitSet;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;

/** The unfinished bootstraps of a communicator: its splits, shrinks and grows. */
public final class Bootstraps {
  private final ProcessEndpoint endpoint;
  private final Bootstrap.Parent parent;
  private final String options;
  private final ConcurrentHashMap<BootstrapKey, Bootstrap> bootstraps = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<BootstrapKey, GrowBootstrap> growBootstraps =
      new ConcurrentHashMap<>();

  /**
   * Creates the bootstraps of a communicator.
   *
   * @param options the options that new ranks must have too, as text
   */
  public Bootstraps(ProcessEndpoint endpoint, Bootstrap.Parent parent, String options) {
    this.endpoint = endpoint;
    this.parent = parent;
    this.options = options;
  }

  ProcessEndpoint endpoint() {
    return endpoint;
  }

  int parentSize() {
    return parent.size();
  }

  String options() {
    return options;
  }

  /** Returns the bootstrap of a split or a shrink. */
  public Bootstrap bootstrap(BootstrapKey key) {
    return bootstraps.computeIfAbsent(
        key,
        k -> {
          BitSet expected = new BitSet();
          expected.set(0, parent.size());
          expected.andNot(k.excluded());
          return open(k, expected, done -> onComplete(k, done));
        });
  }

  /** Returns the number of unfinished splits and shrinks; for tests. */
  public int unfinished() {
    return bootstraps.size();
  }

  /** Creates a bootstrap. The process of the first expected rank coordinates it. */
  Bootstrap open(BootstrapKey key, BitSet expected, Bootstrap.CompletionListener onComplete) {
    RankMap rankMap = parent.rankMap();
    Bootstrap bootstrap =
        new Bootstrap(key.function(), rankMap.secret(), expected, parent, onComplete);
    Bootstrap.Coordinator coordinator =
        parent.coordinator(rankMap.processOf(expected.nextSetBit(0)), key);
    if (coordinator != null) {
      bootstrap.setCoordinator(coordinator);
      return bootstrap;
    }
    BitSet processes = new BitSet();
    expected.stream()
        .filter(rank -> rank < rankMap.size())
        .map(rankMap::processOf)
        .forEach(processes::set);
    processes.stream()
        .mapToObj(process -> parent.stateListener(process, key))
        .filter(Objects::nonNull)
        .forEach(bootstrap::addListener);
    return bootstrap;
  }

  private void onComplete(BootstrapKey key, boolean done) {
    // A rank that calls later than the others needs to see that the bootstrap has failed.
    if (done) {
      forget(key);
    }
  }

  /** Returns the bootstrap of a grow. */
  public GrowBootstrap growBootstrap(BootstrapKey key) {
    return growBootstraps.computeIfAbsent(key, k -> new GrowBootstrap(this, k));
  }

  /**
   * Returns the bootstrap that another process names.
   *
   * @throws NcclException if a grow cannot have this size, or the ranks here expect another size
   */
  public Bootstrap bootstrapFor(BootstrapKey key, int newSize) throws ProtocolException {
    if (key.function().equals(BootstrapKey.GROW)) {
      return growBootstrap(key).bootstrap(newSize);
    }
    if (key.excluded().cardinality() >= parent.size()) {
      throw new ProtocolException("a " + key.function() + " leaves no rank");
    }
    return bootstrap(key);
  }

  /** Returns the bootstrap with this key and size, or null if there is none. */
  public Bootstrap known(BootstrapKey key, int newSize) {
    if (key.function().equals(BootstrapKey.GROW)) {
      GrowBootstrap growBootstrap = growBootstraps.get(key);
      return growBootstrap == null ? null : growBootstrap.knownBootstrap(newSize);
    }
    return bootstraps.get(key);
  }

  void forget(BootstrapKey key) {
    bootstraps.remove(key);
    growBootstraps.remove(key);
  }

  /**
   * Fails the bootstraps whose ranks exclude different ranks or expect a rank that has left, and
   * makes the ranks of the others check what they wait for.
   */
  public void check() {
    bootstraps.forEach(
        (key, bootstrap) -> {
          BootstrapFailure found =
              key.function().equals(BootstrapKey.SHRINK) && !bootstrap.isAssigned()
                  ? parent.disagreement(key.excluded())
                  : null;
          if (found != null) {
            bootstrap.giveUp(found);
          }
          bootstrap.checkPresent();
          bootstrap.wake();
        });
    growBootstraps.values().forEach(GrowBootstrap::checkPresent);
  }
}
