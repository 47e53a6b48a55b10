package io.nccl4j.ras;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import org.jspecify.annotations.NullMarked;

/**
 * What the RAS service knows about a job. Immutable.
 *
 * @param ncclVersion the release of NCCL in the process that answered, such as {@code 2.30.7}
 * @param timestamp the local time of that process, such as {@code 2026-11-27 21:00:00}
 * @param communicators the communicators of the job that are initialized or being initialized
 * @param collectionSeconds how long that process collected the data of the others
 * @param timeouts how often it gave up waiting for others; if above 0, data is missing
 */
@NullMarked
public record RasStatus(
    String ncclVersion,
    String timestamp,
    List<Communicator> communicators,
    double collectionSeconds,
    int timeouts) {
  /** Copies the list. */
  public RasStatus {
    communicators = List.copyOf(communicators);
  }

  static RasStatus read(JsonReader json) throws IOException {
    String version = "";
    String timestamp = "";
    List<Communicator> communicators = new ArrayList<>();
    double seconds = 0;
    int timeouts = 0;
    json.begin('{');
    while (json.next('}')) {
      switch (json.name()) {
        case "nccl_version" -> version = json.string();
        case "timestamp" -> timestamp = json.string();
        case "communicators" -> {
          json.begin('[');
          while (json.next(']')) {
            Communicator communicator = Communicator.read(json);
            // NCCL reports one without content in the place of one whose ranks have not yet met.
            if (communicator.size() > 0) {
              communicators.add(communicator);
            }
          }
        }
        case "ras" -> {
          json.begin('{');
          while (json.next('}')) {
            switch (json.name()) {
              case "collection_time_sec" -> seconds = json.decimal();
              case "timeouts_count" -> timeouts = json.integer();
              default -> json.skip();
            }
          }
        }
        default -> json.skip();
      }
    }
    if (version.isEmpty()) {
      throw new RasException("a RAS answer has no field nccl_version");
    }
    return new RasStatus(version, timestamp, communicators, seconds, timeouts);
  }

  /**
   * A communicator of the job. Immutable.
   *
   * @param hash NCCL's 64 bits for the communicator, which its log calls {@code commId}; the same
   *     for all shrinks of one communicator
   * @param secondaryHash identifies the process of rank 0, in case the hash is not unique
   * @param size the number of its ranks
   * @param ranks the ranks whose processes reported it, in ascending order
   * @param missingRanks the others, in ascending order; without ranks of processes in which RAS is
   *     turned off
   */
  public record Communicator(
      long hash, String secondaryHash, int size, List<Rank> ranks, List<MissingRank> missingRanks) {
    /** Copies the lists. */
    public Communicator {
      ranks = List.copyOf(ranks);
      missingRanks = List.copyOf(missingRanks);
    }

    /**
     * {@return the highest count of each kind of collective over all ranks, in ascending order of
     * the names} A rank with a lower count is behind.
     */
    public SortedMap<String, Long> mostCalls() {
      SortedMap<String, Long> most = new TreeMap<>();
      ranks.forEach(
          rank -> rank.calls().forEach((kind, count) -> most.merge(kind, count, Math::max)));
      return most;
    }

    private static Communicator read(JsonReader json) throws IOException {
      long hash = 0;
      String secondary = "";
      int size = 0;
      List<Rank> ranks = new ArrayList<>();
      List<MissingRank> missing = new ArrayList<>();
      json.begin('{');
      while (json.next('}')) {
        switch (json.name()) {
          case "hash" -> hash = hash(json.string());
          case "secondary_hash" -> secondary = json.string();
          case "size" -> size = json.integer();
          case "ranks" -> {
            json.begin('[');
            while (json.next(']')) {
              ranks.add(Rank.read(json));
            }
          }
          case "missing_ranks" -> {
            json.begin('[');
            while (json.next(']')) {
              missing.add(MissingRank.read(json));
            }
          }
          default -> json.skip();
        }
      }
      for (Rank rank : ranks) {
        checkRank(rank.rank(), size);
      }
      for (MissingRank rank : missing) {
        checkRank(rank.rank(), size);
      }
      return new Communicator(hash, secondary, size, ranks, missing);
    }

    private static void checkRank(int rank, int size) throws IOException {
      if (rank < 0 || rank >= size) {
        throw new RasException("a RAS answer has rank " + rank + " of " + size);
      }
    }

    private static long hash(String text) throws IOException {
      try {
        return Long.parseUnsignedLong(text.replaceFirst("^0x", ""), 16);
      } catch (NumberFormatException e) {
        throw new RasException("a RAS answer has '" + text + "' where a hash belongs");
      }
    }
  }

  /**
   * A rank whose process reported it. Immutable.
   *
   * @param rank its number in the communicator
   * @param host the address of its process in NCCL's bootstrap network, or {@code unknown}
   * @param pid its process id, or -1
   * @param cudaDevice the CUDA device that it uses, as its process numbers them
   * @param nvmlDevice the same device, as NVML numbers them
   * @param initResult the {@code ncclResult_t} of its initialization; 7 while that is in progress
   * @param asyncResult its asynchronous {@code ncclResult_t}; 7 while a call is in progress
   * @param finalizing whether it has called {@code ncclCommFinalize}
   * @param destroying whether it has called {@code ncclCommDestroy} or {@code ncclCommAbort}
   * @param aborting whether its operations are being aborted
   * @param calls how often it has called each kind of collective, by NCCL's name such as {@code
   *     AllReduce}. NCCL counts neither sends and receives nor all-to-all, gather and scatter,
   *     which consist of them, and no captured operation unless a profiler traces kernels
   */
  public record Rank(
      int rank,
      String host,
      int pid,
      int cudaDevice,
      int nvmlDevice,
      int initResult,
      int asyncResult,
      boolean finalizing,
      boolean destroying,
      boolean aborting,
      Map<String, Long> calls) {
    /** Copies the map, in ascending order of the names. */
    public Rank {
      calls = Collections.unmodifiableMap(new TreeMap<>(calls));
    }

    private static Rank read(JsonReader json) throws IOException {
      int rank = -1;
      String host = "";
      int pid = -1;
      int cuda = -1;
      int nvml = -1;
      int init = 0;
      int async = 0;
      boolean finalizing = false;
      boolean destroying = false;
      boolean aborting = false;
      Map<String, Long> calls = new TreeMap<>();
      json.begin('{');
      while (json.next('}')) {
        switch (json.name()) {
          case "rank" -> rank = json.integer();
          case "host" -> host = json.string();
          case "pid" -> pid = json.integer();
          case "cuda_dev" -> cuda = json.integer();
          case "nvml_dev" -> nvml = json.integer();
          case "status" -> {
            json.begin('{');
            while (json.next('}')) {
              switch (json.name()) {
                case "init_state" -> init = json.integer();
                case "async_error" -> async = json.integer();
                case "finalize_called" -> finalizing = json.bool();
                case "destroy_flag" -> destroying = json.bool();
                case "abort_flag" -> aborting = json.bool();
                default -> json.skip();
              }
            }
          }
          case "collective_counts" -> {
            json.begin('{');
            while (json.next('}')) {
              calls.put(json.name(), json.count());
            }
          }
          default -> json.skip();
        }
      }
      return new Rank(
          rank, host, pid, cuda, nvml, init, async, finalizing, destroying, aborting, calls);
    }
  }

  /**
   * A rank that no process reported. If it is neither unresponsive nor considered dead, its process
   * answered, but no longer has the communicator: it has destroyed or aborted it. If its process id
   * is -1, RAS may be turned off there, and nothing follows from the absence of an answer.
   *
   * @param rank its number in the communicator
   * @param host the address of its process, or {@code unknown}
   * @param pid its process id, or -1
   * @param cudaDevice the CUDA device that it uses, as its process numbers them
   * @param nvmlDevice the same device, as NVML numbers them
   * @param unresponsive whether its process did not answer
   * @param consideredDead whether its process has been unreachable for a minute
   */
  public record MissingRank(
      int rank,
      String host,
      int pid,
      int cudaDevice,
      int nvmlDevice,
      boolean unresponsive,
      boolean consideredDead) {
    private static MissingRank read(JsonReader json) throws IOException {
      int rank = -1;
      String host = "";
      int pid = -1;
      int cuda = -1;
      int nvml = -1;
      boolean unresponsive = false;
      boolean dead = false;
      json.begin('{');
      while (json.next('}')) {
        switch (json.name()) {
          case "rank" -> rank = json.integer();
          case "host" -> host = json.string();
          case "pid" -> pid = json.integer();
          case "cuda_dev" -> cuda = json.integer();
          case "nvml_dev" -> nvml = json.integer();
          case "status" -> {
            json.begin('{');
            while (json.next('}')) {
              switch (json.name()) {
                case "unresponsive" -> unresponsive = json.bool();
                case "considered_dead" -> dead = json.bool();
                default -> json.skip();
              }
            }
          }
          default -> json.skip();
        }
      }
      return new MissingRank(rank, host, pid, cuda, nvml, unresponsive, dead);
    }
  }
}
