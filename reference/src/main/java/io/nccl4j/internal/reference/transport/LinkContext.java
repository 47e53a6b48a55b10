package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/** The communicator as its links see it. */
public interface LinkContext {
  /** Returns the number of ranks. */
  int size();

  /** Returns the maximum size of a slice in bytes. */
  int sliceBytes();

  /** Returns whether this process hosts a rank. */
  boolean hosts(int rank);

  /** Returns whether a rank is in another process with which this one may share memory. */
  boolean sharesMemoryWith(int rank);

  Presence presence(int rank);

  /** Wakes a rank of this process that waits for its links. */
  void wake(int rank);

  /** Returns a description of a rank, including its process if that is another one. */
  String describe(int rank);

  /** Fails all ranks because of a failure of a rank in another process. */
  void fail(int rank, String text);

  /** Returns the address at which the process of a remote rank listens. */
  InetSocketAddress address(int rank);

  /** Returns the size of the greeting, the receiver's first message over a link's connection. */
  int greetingBytes();

  /**
   * Returns the claim, the sender's first message over a link's connection.
   *
   * @param greeting the receiver's greeting
   * @throws IOException if the greeting is invalid
   */
  ByteBuffer claim(LinkKey key, byte[] greeting) throws IOException;

  /** Announces the shared memory of a link to its receiver. */
  void announceMemory(LinkKey key, Path path);

  /** Reports to the sender of a link that this process cannot open its shared memory. */
  void refuseMemory(LinkKey key, String why);

  /** Logs a warning without waiting for the logger, which other communicators may need. */
  void warn(String text);
}
