package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.FailureDetails;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.function.Supplier;

/**
 * Assigns the ranks of a new communicator to processes. It is the result of every bootstrap
 * (connect, split, shrink, grow), and each process creates its part of the communicator from it.
 */
public final class RankMap {
  /** The most ranks of a communicator; each is driven by its own thread. */
  public static final int MAX_RANKS = 1 << 15;

  private final long communicator;
  private final Secret secret;
  private final List<ProcessAddress> processes;
  private final int[] processOf;
  // This process's part of the communicator, which all its ranks share.
  private Object formed;
  private NcclException failure;

  private RankMap(
      long communicator, Secret secret, List<ProcessAddress> processes, int[] processOf) {
    this.communicator = communicator;
    this.secret = secret;
    this.processes = processes;
    this.processOf = processOf;
  }

  /** Throws if a number of ranks or devices exceeds {@link #MAX_RANKS}. */
  public static void checkMost(int value, String argument) {
    if (value > MAX_RANKS) {
      throw new IllegalArgumentException(
          argument + " is " + value + "; the reference backend takes at most " + MAX_RANKS);
    }
  }

  /** Returns the map of a new communicator, given the process of each rank. */
  public static RankMap of(Secret secret, List<ProcessAddress> ranks) {
    Map<UUID, Integer> numbers = new LinkedHashMap<>();
    List<ProcessAddress> processes = new ArrayList<>();
    int[] processOf = new int[ranks.size()];
    for (int rank = 0; rank < processOf.length; rank++) {
      ProcessAddress process = ranks.get(rank);
      Integer known = numbers.putIfAbsent(process.process(), processes.size());
      if (known == null) {
        known = processes.size();
        processes.add(process);
      }
      processOf[rank] = known;
    }
    return new RankMap(
        ByteBuffer.wrap(SessionKeys.randomBytes(Long.BYTES)).getLong(),
        secret,
        List.copyOf(processes),
        processOf);
  }

  public static RankMap read(DataInput in) throws IOException {
    long communicator = in.readLong();
    Secret secret = Secret.read(in);
    List<ProcessAddress> processes = new ArrayList<>();
    for (int left = Message.count(in); left > 0; left--) {
      processes.add(ProcessAddress.read(in));
    }
    int[] processOf = new int[Message.count(in)];
    for (int rank = 0; rank < processOf.length; rank++) {
      processOf[rank] = in.readInt();
      if (processOf[rank] < 0 || processOf[rank] >= processes.size()) {
        throw new ProtocolException("a rank map assigns rank " + rank + " to no process");
      }
    }
    return new RankMap(communicator, secret, List.copyOf(processes), processOf);
  }

  public void write(DataOutput out) throws IOException {
    out.writeLong(communicator);
    secret.write(out);
    out.writeInt(processes.size());
    for (ProcessAddress process : processes) {
      process.write(out);
    }
    out.writeInt(processOf.length);
    for (int process : processOf) {
      out.writeInt(process);
    }
  }

  public long communicator() {
    return communicator;
  }

  public Secret secret() {
    return secret;
  }

  public int size() {
    return processOf.length;
  }

  public List<ProcessAddress> processes() {
    return processes;
  }

  /** Returns the index of a rank's process. */
  public int processOf(int rank) {
    return processOf[rank];
  }

  /** Returns the ranks of a process. */
  public BitSet ranksOf(int process) {
    BitSet ranks = new BitSet();
    for (int rank = 0; rank < processOf.length; rank++) {
      if (processOf[rank] == process) {
        ranks.set(rank);
      }
    }
    return ranks;
  }

  /**
   * Returns this process's part of the communicator, which its ranks share: the first rank creates
   * it, the others get the same object, or the failure as they see it.
   */
  public synchronized <T> T form(Class<T> type, Participant participant, Supplier<T> make) {
    if (failure != null) {
      throw seenBy(participant);
    }
    if (formed == null) {
      try {
        formed = make.get();
      } catch (NcclException e) {
        failure = e;
        throw e;
      } catch (CancellationException e) {
        failure = cancelled(participant, e);
        throw e;
      }
    }
    return type.cast(formed);
  }

  private static NcclException cancelled(Participant participant, CancellationException cause) {
    NcclException remote =
        Contract.get()
            .failure(
                participant.bootstrap().function(),
                NcclResult.REMOTE_ERROR.code(),
                "rank " + participant.rank() + " was " + cause.getMessage(),
                "");
    return Contract.get()
        .initDetails(
            remote,
            FailureDetails.of(
                participant.communicator(), RankSets.of(participant.rank()), new BitSet()));
  }

  /** Returns the failure of the rank that called {@link #form} first, as another rank sees it. */
  private NcclException seenBy(Participant participant) {
    FailureDetails known = Contract.get().details(failure);
    FailureDetails details =
        new FailureDetails(
            participant.communicator(),
            known.operation(),
            known.sequenceNumber(),
            known.failedRanks(),
            known.missingRanks());
    if (!(failure instanceof CommunicatorAbortedException)) {
      return Contract.get().copyOf(failure, details);
    }
    NcclException remote =
        Contract.get()
            .failure(
                participant.bootstrap().function(),
                NcclResult.REMOTE_ERROR.code(),
                failure.text(),
                "");
    return Contract.get().initDetails(remote, details);
  }
}
