package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.rendezvous.RendezvousException;
import io.nccl4j.spi.FailureDetails;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Tests the messages and the data of exceptions. */
class ExceptionsTest {
  @Test
  void failureNamesFunctionTextResultCodeAndLastError() {
    NcclException failure = new NcclException("ncclAllReduce", 3, "internal error", "line\n");
    assertEquals(
        "ncclAllReduce: internal error (INTERNAL_ERROR, code 3); last error: line",
        failure.getMessage());
    assertEquals("ncclAllReduce", failure.function());
    assertSame(NcclResult.INTERNAL_ERROR, failure.result());
    assertEquals(3, failure.code());
    assertEquals("line\n", failure.lastError());
  }

  @Test
  void unknownCodeIsPreserved() {
    NcclException failure = new NcclException("ncclCommGrow", 99, "unknown result code", "");
    assertEquals("ncclCommGrow: unknown result code (UNKNOWN, code 99)", failure.getMessage());
    assertSame(NcclResult.UNKNOWN, failure.result());
    assertEquals(99, failure.code());
  }

  @Test
  void everyNcclCodeHasAResult() {
    for (int code = 0; code <= 8; code++) {
      assertEquals(code, NcclResult.ofCode(code).code());
    }
    for (int code : new int[] {-1, 9, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
      assertSame(NcclResult.UNKNOWN, NcclResult.ofCode(code));
    }
  }

  @Test
  void timeoutNamesDurationAndDetail() {
    NcclTimeoutException failure =
        new NcclTimeoutException("connect", Duration.ofMillis(1500), "rank 3 of 4");
    assertEquals(
        "connect: not finished after 1.5 s: rank 3 of 4 (TIMEOUT, code 8)", failure.getMessage());
    assertSame(NcclResult.TIMEOUT, failure.result());
  }

  @Test
  void abortNamesTheCommunicator() {
    CommunicatorAbortedException failure =
        new CommunicatorAbortedException("allReduce", "Communicator[rank 0 of 2]");
    assertEquals(
        "allReduce: Communicator[rank 0 of 2] was aborted (INVALID_USAGE, code 5)",
        failure.getMessage());
  }

  @Test
  void details_areDataAndInTheMessage() {
    NcclException failure = remoteFailure();
    assertEquals(List.of(2, 11), List.copyOf(failure.failedRanks()), "in ascending order");
    assertEquals(Set.of(3), failure.missingRanks());
    assertEquals(Optional.of(Operation.BROADCAST), failure.operation());
    assertEquals(OptionalLong.of(7), failure.sequenceNumber());
    assertEquals(
        "broadcast: rank 2 is lost (REMOTE_ERROR, code 6); collective 7 of Communicator[c]",
        failure.getMessage());
    assertThrows(UnsupportedOperationException.class, () -> failure.failedRanks().add(1));
    assertThrows(UnsupportedOperationException.class, () -> failure.missingRanks().clear());
  }

  @Test
  void details_areInitializedOnce() {
    NcclException failure = remoteFailure();
    failure.initDetails(new FailureDetails("other", Operation.REDUCE, 1, Set.of(), Set.of()));
    assertEquals(remoteFailure().details(), failure.details());
  }

  @Test
  void failureWithoutDetails_hasEmptyData() {
    NcclException failure = new NcclRemoteException("ncclAllReduce", 6, "remote error", "");
    assertEquals(Set.of(), failure.failedRanks());
    assertEquals(Set.of(), failure.missingRanks());
    assertEquals(Optional.empty(), failure.operation());
    assertEquals(OptionalLong.empty(), failure.sequenceNumber());
    assertEquals("ncclAllReduce: remote error (REMOTE_ERROR, code 6)", failure.getMessage());
  }

  @Test
  void copiesAndSerialForms_keepTypeTextAndDetails() throws Exception {
    NcclException failure = remoteFailure();
    NcclException copy = NcclException.copyOf(failure, failure.details());
    assertSame(failure, copy.getCause());
    for (Object other : List.of(copy, throughSerialForm(failure))) {
      NcclException same = assertInstanceOf(NcclRemoteException.class, other);
      assertEquals(failure.details(), same.details());
      assertEquals(failure.getMessage(), same.getMessage());
    }
    NcclException aborted = new CommunicatorAbortedException("close", "Communicator[c]");
    assertInstanceOf(
        CommunicatorAbortedException.class, NcclException.copyOf(aborted, aborted.details()));
  }

  private static NcclException remoteFailure() {
    return new NcclRemoteException("broadcast", 6, "rank 2 is lost", "")
        .initDetails(
            new FailureDetails(
                "Communicator[c]", Operation.BROADCAST, 7, Set.of(11, 2), Set.of(3)));
  }

  @Test
  void unsupportedVersionNamesFoundAndNeededVersions() {
    UnsupportedNcclVersionException failure =
        new UnsupportedNcclVersionException("ncclCommSplit", "2.16.2", "2.18");
    assertEquals(
        "ncclCommSplit: needs NCCL 2.18 or later, found 2.16.2 (INVALID_USAGE, code 5)",
        failure.getMessage());
    assertEquals("2.16.2", failure.found());
    assertEquals("2.18", failure.needed());
  }

  @Test
  void cudaFailureNamesFunctionTextNameAndCode() {
    CudaException failure =
        new CudaException("cudaMalloc", 2, "cudaErrorMemoryAllocation", "out of memory");
    assertEquals(
        "cudaMalloc: out of memory (cudaErrorMemoryAllocation, code 2)", failure.getMessage());
    assertEquals("cudaMalloc", failure.function());
    assertEquals(2, failure.code());
    assertEquals("cudaErrorMemoryAllocation", failure.errorName());
  }

  @Test
  void missingLibraryListsAttemptsAndRemedy() throws Exception {
    LibraryNotFoundException failure =
        new LibraryNotFoundException(
            "nccl",
            List.of(
                new LibraryNotFoundException.Attempt(
                    "system property p", "/a.so", "no such file", false),
                new LibraryNotFoundException.Attempt(
                    "standard name", "libnccl.so.2", "not found", false)),
            "Install NCCL.");
    assertEquals(
        """
        the native library 'nccl' could not be loaded. Install NCCL. Tried:
          system property p: /a.so: no such file
          standard name: libnccl.so.2: not found""",
        failure.getMessage());
    assertEquals("nccl", failure.library());
    assertEquals(2, failure.attempts().size());
    LibraryNotFoundException copy =
        assertInstanceOf(LibraryNotFoundException.class, throughSerialForm(failure));
    assertEquals(failure.attempts(), copy.attempts());
  }

  private static Object throughSerialForm(Object object) throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (ObjectOutputStream objects = new ObjectOutputStream(out)) {
      objects.writeObject(object);
    }
    try (ObjectInputStream objects =
        new ObjectInputStream(new ByteArrayInputStream(out.toByteArray()))) {
      return objects.readObject();
    }
  }

  @Test
  void everyFailureHasOneRoot() {
    for (Class<?> failure :
        List.of(
            NcclException.class,
            CudaException.class,
            LibraryNotFoundException.class,
            RendezvousException.class)) {
      assertSame(Nccl4jException.class, failure.getSuperclass());
    }
    assertInstanceOf(Nccl4jException.class, new NcclTimeoutException("f", Duration.ZERO, "rank"));
  }
}
