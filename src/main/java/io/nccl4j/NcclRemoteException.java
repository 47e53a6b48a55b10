package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * Thrown when a peer failed or its connection was closed: {@link NcclResult#REMOTE_ERROR}. Abort
 * the communicator; the surviving ranks can create a new one.
 */
@NullMarked
public class NcclRemoteException extends NcclException {
  private static final long serialVersionUID = 1;

  NcclRemoteException(String function, int code, String text, String lastError) {
    super(function, code, text, lastError);
  }
}
