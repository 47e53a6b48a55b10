package io.nccl4j.internal.reference.bootstrap;

import java.io.DataInput;
import java.io.IOException;

/** This process's part of a communicator that spans several processes, as connections use it. */
public interface CommunicatorEndpoint {
  /** Returns the unique id of the communicator, the same in all its processes. */
  long id();

  Secret secret();

  /** Accepts the connection over which another process sends control messages. */
  void admitControl(Connection connection, DataInput in) throws IOException;

  /** Accepts the connection of a link. */
  void admitLink(Connection connection, DataInput in) throws IOException;

  /** Reports to all ranks that the ranks of this process have failed. */
  void failHere(String why);
}
