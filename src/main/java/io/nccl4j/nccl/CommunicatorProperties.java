package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.ncclCommProperties;
import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.OptionalInt;
import org.jspecify.annotations.NullMarked;

/**
 * What the devices of a communicator can do, as NCCL reports it: what kernels need to know that
 * communicate by themselves.
 *
 * @param nvmlDevice the number of this rank's device in NVML, which does not depend on {@code
 *     CUDA_VISIBLE_DEVICES}
 * @param deviceApi whether kernels can communicate with NCCL's device API
 * @param multimem whether they can use multicast memory of NVLink
 * @param network how kernels can reach ranks that do not share memory with them
 * @param railNetwork how they can reach those of the same rail; {@link Network#NONE} before 2.29.7
 * @param hostOneSided whether {@link NcclCommunicator#putSignal} is possible; false before 2.29.7
 * @param memoryTeams the number of groups of ranks whose devices can access each other's memory, or
 *     empty before 2.29.7
 */
@NullMarked
public record CommunicatorProperties(
    int nvmlDevice,
    boolean deviceApi,
    boolean multimem,
    Network network,
    Network railNetwork,
    boolean hostOneSided,
    OptionalInt memoryTeams) {
  /** How kernels can use a network. */
  public enum Network {
    /** They cannot. */
    NONE,
    /** A thread of the processor sends for them. */
    PROXY,
    /** They drive the network card. */
    GDAKI,
    /** They use a device of another kind. */
    GPI,
    /** In a way that nccl4j does not know. */
    OTHER;

    private static Network of(int type) {
      if (type == nccl_h.NCCL_GIN_TYPE_NONE()) {
        return NONE;
      } else if (type == nccl_h.NCCL_GIN_TYPE_PROXY()) {
        return PROXY;
      } else if (type == nccl_h.NCCL_GIN_TYPE_GDAKI()) {
        return GDAKI;
      }
      return type == nccl_h.NCCL_GIN_TYPE_GPI() ? GPI : OTHER;
    }
  }

  // The first release that fills in the last three.
  private static final NcclVersion COMPLETE = NcclVersion.of(2, 29, 7);

  /** Queries the properties from NCCL. */
  static CommunicatorProperties query(CommunicatorHandle handle) {
    String function = "ncclCommQueryProperties";
    handle.library().require(function);
    handle.context().checkConnected();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment properties = ncclCommProperties.allocate(arena);
      ncclCommProperties.size(properties, properties.byteSize());
      ncclCommProperties.magic(properties, nccl_h.NCCL_API_MAGIC());
      // An older library refuses the version of a later one.
      int header = nccl_h.NCCL_VERSION_CODE();
      ncclCommProperties.version(properties, Math.min(header, handle.library().code()));
      handle.call(function, comm -> nccl_h.ncclCommQueryProperties(comm, properties));
      int teams = ncclCommProperties.nLsaTeams(properties);
      return new CommunicatorProperties(
          ncclCommProperties.nvmlDev(properties),
          ncclCommProperties.deviceApiSupport(properties),
          ncclCommProperties.multimemSupport(properties),
          Network.of(ncclCommProperties.ginType(properties)),
          Network.of(ncclCommProperties.railedGinType(properties)),
          ncclCommProperties.hostRmaSupport(properties),
          handle.library().atLeast(COMPLETE) ? OptionalInt.of(teams) : OptionalInt.empty());
    }
  }
}
