package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/** What links need of the communicator that they belong to. */
public interface LinkContext {
  /** Returns the number of ranks. */
  int size();

  /** Returns the number of processes that have ranks. */
  int processes();

  /** Returns the size of the largest slice in bytes. */
  int sliceBytes();

  /** Returns whether a rank is of this process. */
  boolean hosts(int rank);

  /** Returns whether a rank is of another process with which this one may share memory. */
  boolean sharesMemoryWith(int rank);

  /** Returns whether all ranks may share memory. */
  boolean allShareMemory();

  Presence presence(int rank);

  /** Ends the sleep of a rank of this process that waits for its links. */
  void wake(int rank);

  /** Names a rank, and its process if that is another one. */
  String describe(int rank);

  /** Fails all ranks, because the process of a rank of another process cannot be understood. */
  void fail(int rank, String text);

  /** Returns where the process of a rank of another process listens. */
  InetSocketAddress address(int rank);

  /** Returns the size of what the receiver of a link says first over its connection. */
  int greetingBytes();

  /**
   * Returns the first message over the connection of a link.
   *
   * @param greeting the receiver's greeting
   * @throws IOException if it is not a greeting of this protocol
   */
  ByteBuffer claim(LinkKey key, byte[] greeting) throws IOException;

  /** Tells the receiver of a link which shared memory the link goes through. */
  void announceMemory(LinkKey key, Path path);

  /** Tells the other processes where the board of all ranks is. */
  void announceSync(Path path);
}
