package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Feature;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.bindings.nccl.ncclConfig_t;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.fixtures.libraries.OnOlderStandIn;
import io.nccl4j.fixtures.libraries.Releases;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.nccl.NcclConfig;
import io.nccl4j.nccl.UnsupportedConfigPolicy;
import io.nccl4j.nccl.VersionReport;
import io.nccl4j.nccl.Window;
import io.nccl4j.nccl.WindowOption;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests that features missing from an older NCCL are refused, as {@code supports} reports. */
@OnOlderStandIn
class OlderReleaseTest {
  private static final String RELEASE = System.getProperty("test.nccl.release");
  private static final String FIRST_WITH_FLOAT8 = "2.24.3";
  // Without the NCCL function, nccl4j uses sends and receives.
  private static final Set<String> EMULATED = Set.of("ncclAlltoAll", "ncclGather", "ncclScatter");

  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));
  private static final String PARAMETERS = "ncclParam";
  // Functions that a program can only call after another function.
  private static final Map<String, String> CALLED_AFTER =
      Map.of(
          "ncclMemFree", "ncclMemAlloc",
          "ncclCommDeregister", "ncclCommRegister",
          "ncclCommWindowDeregister", "ncclCommWindowRegister",
          "ncclWinGetUserPtr", "ncclCommWindowRegister",
          "ncclGetPeerDevicePointer", "ncclCommWindowRegister",
          "ncclGetLsaMultimemDevicePointer", "ncclCommWindowRegister");

  private Backend backend;
  private Communicator comm;
  private Stream stream;
  private String found;

  @BeforeEach
  void open() {
    backend = Backend.nccl();
    found = VersionReport.load().nccl();
    comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG.withName("older"));
    stream = comm.newStream();
    StandIn.reset();
  }

  @AfterEach
  void close() {
    comm.close();
    stream.close();
    backend.close();
  }

  /** Returns, for each function that some tested release lacks, a call that would use it. */
  private Map<String, Executable> callers() {
    Map<String, Executable> callers = new TreeMap<>();
    NcclCommunicator rank = NcclCommunicator.of(comm);
    addCommunicatorCalls(callers, rank);
    addMemoryCalls(callers, NcclBackend.of(backend), rank);
    addOneSidedCalls(callers, rank);
    addOtherCalls(callers, NcclBackend.of(backend));
    return callers;
  }

  private void addCommunicatorCalls(Map<String, Executable> callers, NcclCommunicator rank) {
    List<UniqueId> ids = List.of(backend.newUniqueId());
    callers.put(
        "ncclCommInitRankScalable",
        () -> NcclBackend.of(backend).newCommunicator(ids, 1, 0, NcclConfig.of(CONFIG)));
    callers.put("ncclCommShrink", this::shrinkTwoRanks);
    callers.put("ncclCommGetUniqueId", comm::newGrowId);
    callers.put("ncclCommGrow", () -> comm.grow(2, CONFIG));
    callers.put("ncclCommRevoke", rank::revoke);
    callers.put("ncclCommSuspend", rank::suspend);
    callers.put("ncclCommResume", rank::resume);
    callers.put("ncclCommMemStats", rank::memoryStatistics);
    callers.put("ncclCommQueryProperties", rank::properties);
  }

  private void shrinkTwoRanks() {
    List<Communicator> two = backend.newCommunicators(new int[] {0, 1}, CONFIG);
    try {
      two.getFirst().shrink(Set.of(1), ShrinkMode.ABORT_FIRST, CONFIG);
    } finally {
      assertFalse(two.getFirst().isAborted(), "refused before anything was done");
      two.forEach(Communicator::abort);
    }
  }

  /** The release is checked before the arguments, so most of these pass null. */
  private void addMemoryCalls(
      Map<String, Executable> callers, NcclBackend nccl, NcclCommunicator rank) {
    callers.put("ncclMemAlloc", () -> nccl.newRegistrableBuffer(0, DataType.INT8, 1).close());
    callers.put("ncclMemFree", () -> nccl.newRegistrableBuffer(0, DataType.INT8, 1).close());
    callers.put("ncclCommRegister", () -> rank.register(null));
    callers.put("ncclCommDeregister", () -> rank.register(null).close());
    callers.put("ncclCommWindowRegister", () -> rank.registerWindow(null));
    callers.put("ncclCommWindowDeregister", () -> rank.registerWindow(null).close());
    callers.put("ncclWinGetUserPtr", query(nccl, rank, Window::userBuffer));
    callers.put("ncclGetPeerDevicePointer", query(nccl, rank, it -> it.peerAddress(0, 0)));
    callers.put("ncclGetLsaMultimemDevicePointer", query(nccl, rank, it -> it.multicastAddress(0)));
  }

  private Executable query(NcclBackend nccl, NcclCommunicator rank, Consumer<Window> query) {
    return lacks(Releases.byFunction().get("ncclCommWindowRegister"))
        ? () -> rank.registerWindow(null)
        : () -> {
          try (Buffer memory = nccl.newRegistrableBuffer(0, DataType.INT8, 1);
              Window window = rank.registerWindow(memory)) {
            query.accept(window);
          }
        };
  }

  private void addOneSidedCalls(Map<String, Executable> callers, NcclCommunicator rank) {
    callers.put("ncclPutSignal", () -> rank.putSignal(null, 0, null, 0, stream));
    callers.put("ncclSignal", () -> rank.signal(0, stream));
    callers.put("ncclWaitSignal", () -> rank.waitSignal(null, stream));
  }

  @SuppressWarnings("deprecation") // As its C function.
  private static void addOtherCalls(Map<String, Executable> callers, NcclBackend nccl) {
    callers.put("ncclGroupSimulateEnd", () -> nccl.estimate(() -> {}));
    callers.put("ncclResetDebugInit", nccl::resetDebugInit);
    Releases.byFunction().keySet().stream()
        .filter(function -> function.startsWith(PARAMETERS))
        .forEach(function -> callers.put(function, nccl::parameters));
  }

  /** Returns the missing function that is named when a program needs another one. */
  private String refused(String function) {
    String first =
        function.startsWith(PARAMETERS)
            ? "ncclParamGetParameter"
            : CALLED_AFTER.getOrDefault(function, function);
    return lacks(Releases.byFunction().get(first)) ? first : function;
  }

  private boolean lacks(String release) {
    return Releases.compare(found, release) < 0;
  }

  @Test
  void libraryIsOfExpectedRelease() {
    assertTrue(found.startsWith(RELEASE + "."), found);
  }

  @Test
  void missingFunctionsAreRefusedBeforeTheCall() {
    SortedMap<String, String> releases = Releases.byFunction();
    SortedSet<String> lacking = new TreeSet<>(LibraryCalls.to(nccl_h.class));
    lacking.removeIf(f -> EMULATED.contains(f) || !releases.containsKey(f));
    lacking.removeIf(f -> !lacks(releases.get(f)));
    Map<String, Executable> callers = callers();
    assertEquals(
        Set.of(),
        new TreeSet<>(lacking.stream().filter(f -> !callers.containsKey(f)).toList()),
        "functions that nccl4j calls; add to callers() how a program reaches them");
    for (String function : lacking) {
      String refused = refused(function);
      assertRefused(refused, releases.get(refused), callers.get(function));
      assertEquals(0, StandIn.calls(function), function);
    }
    assertNoGroupIsOpen();
  }

  @Test
  void optionOfLaterReleaseIsRefusedBeforeTheCall() {
    NcclCommunicator rank = NcclCommunicator.of(comm);
    assumeFalse(lacks(Releases.byFunction().get("ncclCommWindowRegister")), "it has no windows");
    try (Buffer memory = NcclBackend.of(backend).newRegistrableBuffer(0, DataType.INT8, 1)) {
      assertRefused(
          "WindowOption.STRICT_ORDERING",
          "2.29.7",
          () -> rank.registerWindow(memory, WindowOption.STRICT_ORDERING));
      rank.registerWindow(memory, WindowOption.SYMMETRIC).close();
      assertEquals(1, StandIn.calls("ncclCommWindowRegister"));
    }
  }

  private void assertRefused(String function, String needed, Executable caller) {
    UnsupportedNcclVersionException refused =
        assertThrows(UnsupportedNcclVersionException.class, caller, function);
    assertEquals(function, refused.function());
    assertEquals(found, refused.found());
    assertEquals(needed, refused.needed());
  }

  private void assertNoGroupIsOpen() {
    Buffer value = ints(5);
    Buffer result = ints(0);
    comm.allReduce(value, result, ReduceOp.SUM, stream);
    assertArrayEquals(new int[] {5}, download(result), "launched at once");
    value.close();
    result.close();
  }

  private Buffer ints(int... values) {
    Buffer buffer = comm.newBuffer(DataType.INT32, values.length);
    buffer.copyFromAsync(MemorySegment.ofArray(values), stream);
    return buffer;
  }

  private int[] download(Buffer buffer) {
    int[] values = new int[(int) buffer.count()];
    buffer.copyTo(MemorySegment.ofArray(values), stream);
    return values;
  }

  @Test
  void float8IsRefusedBeforeTheCallIfUnsupported() {
    for (DataType type : Set.of(DataType.FLOAT8E4M3, DataType.FLOAT8E5M2)) {
      try (Buffer send = comm.newBuffer(type, 4);
          Buffer recv = comm.newBuffer(type, 4);
          Buffer factor = comm.newBuffer(type, 1)) {
        Map<String, Executable> callers = new TreeMap<>();
        callers.put("ncclAllReduce", () -> comm.allReduce(send, recv, ReduceOp.MAX, stream));
        callers.put("ncclBroadcast", () -> comm.broadcast(send, recv, 0, stream));
        callers.put("ncclReduce", () -> comm.reduce(send, recv, ReduceOp.SUM, 0, stream));
        callers.put("ncclAllGather", () -> comm.allGather(send, recv, stream));
        callers.put(
            "ncclReduceScatter", () -> comm.reduceScatter(send, recv, ReduceOp.SUM, stream));
        callers.put("ncclAlltoAll", () -> comm.allToAll(send, recv, stream));
        callers.put("ncclGather", () -> comm.gather(send, recv, 0, stream));
        callers.put("ncclScatter", () -> comm.scatter(send, recv, 0, stream));
        callers.put("ncclSend", () -> Group.run(() -> sendToSelf(send, recv)));
        callers.put("ncclRedOpCreatePreMulSum", () -> comm.newPreMulSum(type, 2).close());
        if (lacks(FIRST_WITH_FLOAT8)) {
          callers.forEach((f, call) -> assertRefused(f + " of " + type, FIRST_WITH_FLOAT8, call));
          assertRefused(
              "ncclRedOpCreatePreMulSum of " + type,
              FIRST_WITH_FLOAT8,
              () -> comm.newPreMulSum(factor));
          callers.keySet().forEach(f -> assertEquals(0, StandIn.calls(f), f));
          assertEquals(0, StandIn.calls("ncclGroupStart"));
        } else {
          callers.forEach((f, call) -> assertWorks(call));
          stream.synchronize();
        }
      }
    }
    assertNoGroupIsOpen();
  }

  private void sendToSelf(Buffer send, Buffer recv) {
    comm.send(send, 0, stream);
    comm.recv(recv, 0, stream);
  }

  private static void assertWorks(Executable call) {
    try {
      call.execute();
    } catch (Throwable failure) {
      throw new AssertionError(failure);
    }
  }

  @Test
  void unsupportedConfigFieldIsRefusedOrLeftOut() {
    NcclBackend nccl = NcclBackend.of(backend);
    NcclConfig config = NcclConfig.of(CONFIG).withMaxP2pPeers(2).withMaxCtas(3);
    UnsupportedNcclVersionException refused =
        assertThrows(
            UnsupportedNcclVersionException.class,
            () -> nccl.newCommunicator(backend.newUniqueId(), 1, 0, config));
    assertEquals("ncclConfig_t.maxP2pPeers = 2", refused.function());
    assertEquals(found, refused.found());
    assertEquals("2.30.0", refused.needed());
    assertEquals(0, StandIn.calls("ncclCommInitRankConfig"));
    NcclConfig warned = config.withUnsupportedConfigPolicy(UnsupportedConfigPolicy.WARN);
    nccl.newCommunicator(backend.newUniqueId(), 1, 0, warned).close();
    assertEquals(
        Integer.MIN_VALUE, ncclConfig_t.maxP2pPeers(StandIn.lastConfig(ncclConfig_t.layout())));
    assertEquals(3, ncclConfig_t.maxCTAs(StandIn.lastConfig(ncclConfig_t.layout())));
  }

  @Test
  void unsupportedCommunicatorNameIsRefused() {
    NcclConfig named = NcclConfig.of(CONFIG.withName("older"));
    if (!lacks("2.27")) {
      nccl(named).close();
      assertEquals(
          "older", ncclConfig_t.commName(StandIn.lastConfig(ncclConfig_t.layout())).getString(0));
      return;
    }
    UnsupportedNcclVersionException refused =
        assertThrows(UnsupportedNcclVersionException.class, () -> nccl(named));
    assertEquals("ncclConfig_t.commName = older", refused.function());
    assertEquals("2.27.0", refused.needed());
    assertThrows(
        UnsupportedNcclVersionException.class, () -> NcclCommunicator.of(comm).split(0, 0, named));
    assertEquals(0, StandIn.calls("ncclCommInitRankConfig"));
    nccl(named.withUnsupportedConfigPolicy(UnsupportedConfigPolicy.WARN)).close();
    comm.split(0, 0, named.common()).close();
    assertEquals(1, StandIn.calls("ncclCommSplit"), "a plain configuration only logs a warning");
  }

  private Communicator nccl(NcclConfig config) {
    return NcclBackend.of(backend).newCommunicator(backend.newUniqueId(), 1, 0, config);
  }

  @Test
  void supportsMatchesTheRelease() {
    Map<Feature, String> first = new TreeMap<>();
    SortedMap<String, String> releases = Releases.byFunction();
    first.put(Feature.GRAPHS, "2.9");
    first.put(Feature.PRE_MUL_SUM, releases.get("ncclRedOpCreatePreMulSum"));
    first.put(Feature.SPLIT, releases.get("ncclCommSplit"));
    first.put(Feature.SHRINK, releases.get("ncclCommShrink"));
    first.put(Feature.GROW, releases.get("ncclCommGrow"));
    first.put(Feature.SEVERAL_IDS, releases.get("ncclCommInitRankScalable"));
    first.put(Feature.REVOKE, releases.get("ncclCommRevoke"));
    first.put(Feature.SUSPEND, releases.get("ncclCommSuspend"));
    first.put(Feature.MEMORY_STATISTICS, releases.get("ncclCommMemStats"));
    first.put(Feature.PROPERTIES, releases.get("ncclCommQueryProperties"));
    first.put(Feature.REGISTRATION, releases.get("ncclCommRegister"));
    first.put(Feature.WINDOWS, releases.get("ncclCommWindowRegister"));
    first.put(Feature.WINDOW_ADDRESSES, releases.get("ncclWinGetUserPtr"));
    first.put(Feature.ONE_SIDED, releases.get("ncclPutSignal"));
    first.put(Feature.GROUP_ESTIMATES, releases.get("ncclGroupSimulateEnd"));
    first.put(Feature.PARAMETERS, releases.get("ncclParamBind"));
    first.put(Feature.FLOAT8_DATA, FIRST_WITH_FLOAT8);
    first.put(Feature.FLOAT8_REDUCTION, FIRST_WITH_FLOAT8);
    for (Feature feature : Feature.values()) {
      assertEquals(!lacks(first.get(feature)), backend.supports(feature), feature::toString);
    }
    assertEquals(0, StandIn.calls("ncclGetVersion"), "supports makes no native call");
  }
}
