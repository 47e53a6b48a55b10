package io.nccl4j;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.NullMarked;

/**
 * What nccl4j has done in this process, for JMX: the MXBean {@code io.nccl4j:type=Statistics} of
 * the platform's MBean server. It is registered while a backend is open, at most a second after the
 * first JMX agent or console has attached. A program whose modules do not include {@code
 * java.management} has none; {@code --add-modules java.management} adds it.
 *
 * <p>The counters start with the process and never decrease, except that operations and bytes of a
 * communicator are lost if it is garbage-collected without having been closed. Reading and dumping
 * make no native call, so both work while a job hangs.
 */
@NullMarked
public interface StatisticsMXBean {
  /**
   * An open communicator of this process.
   *
   * @param communicator the identity in recordings, such as {@code 1f2e3d4c/split2.0}
   * @param name the name from its configuration, or an empty string
   * @param rank this rank
   * @param ranks the number of ranks
   * @param device the device, such as {@code CUDA device 0}
   * @param state {@code connected}, {@code suspended}, {@code revoked} or {@code closing}
   * @param operations the collectives, sends and receives that were launched
   * @param bytes the bytes of these, as in {@link #getBytes}
   */
  record CommunicatorStatistics(
      String communicator,
      String name,
      int rank,
      int ranks,
      String device,
      String state,
      long operations,
      long bytes) {}

  /** {@return the open communicators, by their identity and rank: {@code 1f2e3d4c rank 3}} */
  Map<String, CommunicatorStatistics> getCommunicators();

  /** {@return the number of open communicators} */
  int getOpenCommunicators();

  /** {@return the number of streams that have not been released} */
  int getOpenStreams();

  /** {@return the number of graphs that have not been released} */
  int getOpenGraphs();

  /**
   * {@return the number of buffers whose memory nccl4j has not released yet} Buffers that only wrap
   * memory of another owner do not count, nor do slices.
   */
  int getOpenBuffers();

  /** {@return the size of these buffers in bytes} */
  long getOpenBufferBytes();

  /**
   * {@return the number of collectives, sends and receives that were launched on the ranks of this
   * process} Each launch of a graph counts its operations.
   */
  long getOperations();

  /**
   * {@return the sum of the sizes of these operations} The size of one is that of its larger buffer
   * on this rank, as in nccl-tests; it is not the traffic on a network.
   */
  long getBytes();

  /** {@return the number of waits for streams and events, and of copies to arrays} */
  long getWaits();

  /** {@return how long threads were in these waits, in milliseconds} */
  long getWaitMillis();

  /**
   * {@return the number of {@link NcclTimeoutException}s of operations, waits, and the creation and
   * close of communicators} One reason may count several times, since every wait throws it.
   */
  long getTimeouts();

  /** {@return the number of other {@link NcclException}s and {@link CudaException}s of these} */
  long getFailures();

  /**
   * Writes the last operations of this process's ranks, as {@link FlightRecorder#dump}.
   *
   * @param folder the absolute path of a folder on this host, which is created if it does not exist
   * @return the files for PyTorch's {@code torchfrtrace}
   * @throws IOException if a file cannot be written
   * @throws IllegalArgumentException if the path is not absolute
   */
  List<String> dumpOperations(String folder) throws IOException;
}
