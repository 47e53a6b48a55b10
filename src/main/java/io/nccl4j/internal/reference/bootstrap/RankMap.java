package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.FailureDetails;
import io.nccl4j.NcclException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclResult;
import io.nccl4j.internal.auth.SessionKeys;
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
import java.util.function.Supplier;

/**
 * Who will be who in a world: what every way to a communicator (connecting, split, shrink, grow)
 * ends with, and what each process makes its part of the world from.
 */
public final class RankMap {
  /** The most ranks of a communicator; each is driven by a thread of a process. */
  public static final int MOST_RANKS = 1 << 15;

  private final long communicator;
  private final Secret secret;
  private final List<ProcessAddress> processes;
  private final int[] processOf;
  // The part of this process, which all its ranks share.
  private Object formed;
  private NcclException failure;

  private RankMap(long world, Secret secret, List<ProcessAddress> processes, int[] processOf) {
    this.communicator = world;
    this.secret = secret;
    this.processes = processes;
    this.processOf = processOf;
  }

  /** Throws if there are to be more ranks, or devices, than there can be. */
  public static void checkMost(int value, String argument) {
    if (value > MOST_RANKS) {
      throw new IllegalArgumentException(
          argument + " is " + value + "; the reference backend takes at most " + MOST_RANKS);
    }
  }

  /** Makes a plan of a new world, given where each rank is. */
  public static RankMap of(Secret secret, List<ProcessAddress> ranks) {
    Map<UUID, Integer> numbers = new LinkedHashMap<>();
    List<ProcessAddress> processes = new ArrayList<>();
    int[] processOf = new int[ranks.size()];
    for (int rank = 0; rank < processOf.length; rank++) {
      ProcessAddress at = ranks.get(rank);
      Integer known = numbers.putIfAbsent(at.process(), processes.size());
      if (known == null) {
        known = processes.size();
        processes.add(at);
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
    long world = in.readLong();
    Secret secret = Secret.read(in);
    List<ProcessAddress> processes = new ArrayList<>();
    for (int left = Message.count(in); left > 0; left--) {
      processes.add(ProcessAddress.read(in));
    }
    int[] processOf = new int[Message.count(in)];
    for (int rank = 0; rank < processOf.length; rank++) {
      processOf[rank] = in.readInt();
      if (processOf[rank] < 0 || processOf[rank] >= processes.size()) {
        throw new ProtocolException("a plan has rank " + rank + " in no process");
      }
    }
    return new RankMap(world, secret, List.copyOf(processes), processOf);
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

  /** Returns the number of the process that a rank is in. */
  public int processOf(int rank) {
    return processOf[rank];
  }

  public ProcessAddress addressOf(int rank) {
    return processes.get(processOf[rank]);
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
   * Returns what the ranks of this process make of the plan together: the first one makes it, the
   * others get the same, or the failure as they see it.
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
      }
    }
    return type.cast(formed);
  }

  /**
   * Returns the failure of the rank that formed the world, as another rank of its process sees it.
   */
  private NcclException seenBy(Participant participant) {
    FailureDetails known = failure.details();
    FailureDetails details =
        new FailureDetails(
            participant.communicator(),
            known.operation(),
            known.sequenceNumber(),
            known.failedRanks(),
            known.missingRanks());
    return failure instanceof CommunicatorAbortedException
        ? new NcclRemoteException(
                participant.bootstrap().function(),
                NcclResult.REMOTE_ERROR.code(),
                failure.text(),
                "")
            .initDetails(details)
        : NcclException.copyOf(failure, details);
  }
}
