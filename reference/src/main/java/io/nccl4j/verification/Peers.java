package io.nccl4j.verification;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclResult;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.reference.ReferenceOptions;
import io.nccl4j.spi.Contract;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/**
 * The communicators of the reference for the ranks of a communicator of NCCL: one with the default
 * options, and others with those that a prediction needs. One thread at a time uses them.
 */
final class Peers implements AutoCloseable {
  /** A communicator of the reference, with a stream. */
  record Link(Communicator communicator, Stream stream) {}

  private final int rank;
  private final int size;
  private final CommunicatorConfig config;
  private final Map<ReferenceOptions, Link> links = new ConcurrentHashMap<>();

  private Peers(int rank, int size, CommunicatorConfig config) {
    this.rank = rank;
    this.size = size;
    this.config = config;
  }

  /**
   * Connects the ranks of a communicator of NCCL, which all call this: their id travels over that
   * communicator.
   *
   * @param timeout the longest time that a rank waits for another one
   */
  static Peers connect(Communicator nccl, String purpose, Duration timeout) {
    CommunicatorConfig config =
        CommunicatorConfig.defaults().withTimeout(timeout).withName(purpose);
    Peers peers = new Peers(nccl.rank(), nccl.size(), config);
    Backend backend = ReferenceBackend.open(1);
    try {
      Link first = peers.join(backend, peers.exchangeId(nccl, backend));
      peers.links.put(ReferenceOptions.defaults(), first);
      return peers;
    } catch (Throwable failure) {
      CloseAll.after(failure, backend::close);
      throw failure;
    }
  }

  private UniqueId exchangeId(Communicator nccl, Backend backend) {
    UniqueId own = null;
    RuntimeException failure =
        Contract.get()
            .failure(
                "newUniqueId",
                NcclResult.REMOTE_ERROR.code(),
                "rank 0 could not create an id of the reference; its exception has the reason",
                "");
    if (rank == 0) {
      try {
        own = backend.newUniqueId();
      } catch (RuntimeException e) {
        failure = e; // The other ranks must learn of it.
      }
    }
    byte[] bytes = own == null ? new byte[0] : own.toBytes();
    try (Stream stream = nccl.newStream()) {
      bytes = nccl.broadcastBytes(bytes, 0, stream);
    } catch (Throwable broken) {
      if (own != null) {
        UniqueId unused = own;
        CloseAll.after(broken, () -> backend.closeUniqueId(unused));
      }
      throw broken;
    }
    if (bytes.length == 0) {
      throw failure;
    }
    return UniqueId.of(bytes);
  }

  private Link join(Backend backend, UniqueId id) {
    Communicator joined = backend.newCommunicator(id, size, rank, config);
    return new Link(joined, joined.newStream());
  }

  int rank() {
    return rank;
  }

  int size() {
    return size;
  }

  /** Returns the communicator with the default options. */
  Link link() {
    return links.get(ReferenceOptions.defaults());
  }

  /** Returns the communicator with some options, the same on all ranks, which all call this. */
  Link link(ReferenceOptions options) {
    Link known = links.get(options);
    if (known == null) {
      Backend backend = ReferenceBackend.open(1, options);
      try {
        byte[] own = rank == 0 ? backend.newUniqueId().toBytes() : null;
        byte[] id = link().communicator.broadcastBytes(own, 0, link().stream);
        known = join(backend, UniqueId.of(id));
        links.put(options, known);
      } catch (Throwable failure) {
        CloseAll.after(failure, backend::close);
        throw failure;
      }
    }
    return known;
  }

  /** Gathers as many numbers from each rank; returns those of all ranks, in rank order. */
  long[] gather(long... own) {
    Link main = link();
    try (Buffer all = main.communicator.newBuffer(DataType.INT64, (long) own.length * size)) {
      Buffer mine = all.slice((long) rank * own.length, own.length);
      mine.copyFromAsync(own, main.stream);
      main.communicator.allGather(mine, all, main.stream);
      long[] values = new long[own.length * size];
      all.copyTo(values, main.stream);
      return values;
    }
  }

  /** Gathers lines of text from each rank; returns those of all ranks. */
  List<String> gather(List<String> own) {
    Link main = link();
    byte[] text = String.join("\n", own).getBytes(StandardCharsets.UTF_8);
    List<byte[]> texts = main.communicator.gatherBytes(text, 0, main.stream);
    String all =
        texts.stream()
            .map(bytes -> new String(bytes, StandardCharsets.UTF_8))
            .collect(Collectors.joining("\n"));
    byte[] joined =
        main.communicator.broadcastBytes(all.getBytes(StandardCharsets.UTF_8), 0, main.stream);
    return new String(joined, StandardCharsets.UTF_8).lines().toList();
  }

  /** Ends every wait for other ranks; any thread may call it. */
  void abort() {
    links.values().forEach(link -> link.communicator.abort());
  }

  /** Ends all connections; failures that earlier calls have thrown are not thrown again. */
  @Override
  public void close() {
    List<Runnable> steps = new ArrayList<>();
    for (Link link : links.values()) {
      Communicator communicator = link.communicator;
      boolean failed = communicator.isOpen() && communicator.asyncError().isPresent();
      steps.add(failed ? communicator::abort : communicator::close);
      steps.add(link.stream::close);
      steps.add(link.communicator.backend()::close);
    }
    CloseAll.all(steps);
  }
}
