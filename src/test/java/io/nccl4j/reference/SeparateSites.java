package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.internal.reference.bootstrap.Site;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * Backends whose ranks behave as if each were in a process of its own, though they are threads of
 * this one: they meet over sockets, and their data goes over TCP or through shared memory.
 */
public final class SeparateSites {
  private SeparateSites() {}

  /** Opens a backend. */
  public static Backend open(int devices, Links links) {
    return open(devices, ReferenceOptions.defaults().withLinks(links), 64);
  }

  /** Opens a backend in which rank r is in place r % sites. */
  static Backend open(int devices, ReferenceOptions options, int sites) {
    List<Site> places =
        Stream.concat(
                Stream.of(Site.ofThisProcess()),
                IntStream.range(1, sites).mapToObj(i -> new Site()))
            .toList();
    return open(devices, options, places);
  }

  /** Opens a backend in which rank r is in place r % places.size(). */
  static Backend open(int devices, ReferenceOptions options, List<Site> places) {
    int sites = places.size();
    return ReferenceBackend.open(devices, options, rank -> places.get(rank % sites));
  }
}
