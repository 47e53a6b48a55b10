package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclException;
import java.net.ProtocolException;
import java.util.BitSet;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Where the ranks of a communicator meet to make new ones, as far as that is not done: for a split,
 * a shrink or a grow.
 */
public final class Bootstraps {
  private final ProcessEndpoint endpoint;
  private final Bootstrap.Parent parent;
  private final String options;
  private final ConcurrentHashMap<BootstrapKey, Bootstrap> bootstraps = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<BootstrapKey, GrowBootstrap> growBootstraps =
      new ConcurrentHashMap<>();

  /**
   * Makes those of a communicator.
   *
   * @param options what new ranks must do their work with too, as text
   */
  public Bootstraps(ProcessEndpoint site, Bootstrap.Parent parent, String options) {
    this.endpoint = site;
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

  /** Returns where the ranks meet for a split or a shrink. */
  public Bootstrap bootstrap(BootstrapKey occasion) {
    return bootstraps.computeIfAbsent(
        occasion,
        o -> {
          BitSet expected = new BitSet();
          expected.set(0, parent.size());
          expected.andNot(o.excluded());
          return open(o, expected, done -> over(o, done));
        });
  }

  /** Returns how many splits and shrinks are known that are not done; for tests. */
  public int unfinished() {
    return bootstraps.size();
  }

  /**
   * Makes the meeting of an occasion: here if this process convenes it, else at the one that does.
   */
  Bootstrap open(BootstrapKey occasion, BitSet expected, Bootstrap.CompletionListener end) {
    RankMap rankMap = parent.rankMap();
    Bootstrap bootstrap =
        new Bootstrap(occasion.function(), rankMap.secret(), expected, parent, end);
    Bootstrap.Coordinator coordinator =
        parent.coordinator(rankMap.processOf(expected.nextSetBit(0)), occasion);
    if (coordinator != null) {
      bootstrap.follow(coordinator);
      return bootstrap;
    }
    BitSet told = new BitSet();
    expected.stream()
        .filter(rank -> rank < rankMap.size())
        .map(rankMap::processOf)
        .forEach(told::set);
    told.stream()
        .mapToObj(process -> parent.stateListener(process, occasion))
        .filter(Objects::nonNull)
        .forEach(bootstrap::addListener);
    return bootstrap;
  }

  private void over(BootstrapKey occasion, boolean done) {
    // A rank that calls later than the others needs to find that the meeting has failed.
    if (done) {
      forget(occasion);
    }
  }

  /** Returns where the ranks meet for a grow. */
  public GrowBootstrap growBootstrap(BootstrapKey occasion) {
    return growBootstraps.computeIfAbsent(occasion, o -> new GrowBootstrap(this, o));
  }

  /**
   * Returns the meeting of an occasion that ranks of another process speak of.
   *
   * @throws NcclException if a grow cannot have this size, or the ranks here want another one
   */
  public Bootstrap bootstrapFor(BootstrapKey occasion, int newSize) throws ProtocolException {
    if (occasion.function().equals(BootstrapKey.GROW)) {
      return growBootstrap(occasion).bootstrap(newSize);
    }
    if (occasion.excluded().cardinality() >= parent.size()) {
      throw new ProtocolException("a " + occasion.function() + " leaves no rank");
    }
    return bootstrap(occasion);
  }

  /** Returns the meeting of an occasion, or null if there is none for this size. */
  public Bootstrap known(BootstrapKey occasion, int newSize) {
    if (occasion.function().equals(BootstrapKey.GROW)) {
      GrowBootstrap growBootstrap = growBootstraps.get(occasion);
      return growBootstrap == null ? null : growBootstrap.knownBootstrap(newSize);
    }
    return bootstraps.get(occasion);
  }

  void forget(BootstrapKey occasion) {
    bootstraps.remove(occasion);
    growBootstraps.remove(occasion);
  }

  /** Ends those meetings that need a rank that has left. */
  public void checkPresent() {
    bootstraps.values().forEach(Bootstrap::checkPresent);
    growBootstraps.values().forEach(GrowBootstrap::checkPresent);
  }
}
