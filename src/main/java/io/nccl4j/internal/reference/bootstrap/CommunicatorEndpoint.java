package io.nccl4j.internal.reference.bootstrap;

import java.io.DataInput;
import java.io.IOException;

/**
 * One process's part of a communicator with ranks in several, as connections of others reach it.
 */
public interface CommunicatorEndpoint {
  /** Returns the number that all processes know the communicator by, and that no other has. */
  long id();

  Secret secret();

  /** Takes the connection that another process sends control messages over. */
  void admitControl(Connection connection, DataInput in) throws IOException;

  /** Takes the connection of a link. */
  void admitLink(Connection connection, DataInput in) throws IOException;

  /** Reports to all ranks that those of this process cannot go on. */
  void failHere(String why);
}
