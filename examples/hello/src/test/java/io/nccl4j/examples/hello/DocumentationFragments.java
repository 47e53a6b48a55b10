package io.nccl4j.examples.hello;

import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import io.nccl4j.ShrinkMode;
import java.util.Set;
import java.util.TreeSet;

/** Code that pages of the documentation show, so that it is compiled. */
final class DocumentationFragments {
  private DocumentationFragments() {}

  static Communicator launching(Communicator comm, NcclException failure) {
    Set<Integer> lost = new TreeSet<>(failure.failedRanks());
    lost.addAll(failure.missingRanks());
    Communicator smaller = comm.shrink(lost, ShrinkMode.ABORT_FIRST);
    return smaller;
  }
}
