package io.nccl4j.tools.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.ffm.NativeLibrary;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests of the checks on library copies and their device code. */
class LibrariesTest {
  @TempDir Path root;

  private Fixture machine;

  @BeforeEach
  void createMachineWithOneCopy() throws IOException {
    machine = new Fixture(root);
    copy("system loader", "2.30.7");
  }

  /** Adds a copy of libnccl, found by a source. */
  private Path copy(String source, String release) throws IOException {
    Path file =
        new ElfFile()
            .constants("NCCL version " + release + "+cuda13.3")
            .write(root.resolve(source).resolve("libnccl.so.2"));
    machine.ncclCopies.add(new NativeLibrary.Copy(source, file, null));
    return file;
  }

  private static LibraryFile file(boolean standIn, Architecture... architectures) {
    return new LibraryFile(
        Optional.of("2.30.7"),
        Optional.of("13.3"),
        standIn,
        Set.of(),
        new TreeSet<>(List.of(architectures)));
  }

  @Test
  void oneCopyIsFine() {
    assertEquals(List.of(), machine.titles(LibrariesCheck::findings));
  }

  @Test
  void copiesOfOneReleaseAreANote() throws IOException {
    Path conda = copy("conda", "2.30.7");
    Finding finding = machine.onlyFinding(LibrariesCheck::findings);
    assertEquals(Severity.NOTE, finding.severity());
    assertEquals("2 copies of libnccl were found; nccl4j uses the first:", finding.title());
    assertEquals(
        List.of(
            "2.30.7: " + root.resolve("system loader/libnccl.so.2") + " (system loader)",
            "2.30.7: " + conda + " (conda)"),
        finding.details());
  }

  @Test
  void copiesOfTwoReleasesAreAWarning() throws IOException {
    copy("conda", "2.27.3");
    assertEquals(Severity.WARNING, machine.onlyFinding(LibrariesCheck::findings).severity());
  }

  @Test
  void copyThatCannotBeLoadedIsListedWithReason() {
    Path arm = Path.of("/arm/libnccl.so.2");
    machine.ncclCopies.add(new NativeLibrary.Copy("conda", arm, "is for another processor"));
    Finding finding = machine.onlyFinding(LibrariesCheck::findings);
    assertEquals(Severity.WARNING, finding.severity());
    assertEquals(
        "unusable (is for another processor): /arm/libnccl.so.2 (conda)",
        finding.details().getLast());
  }

  @Test
  void copyInUseIsTheFirstWithoutFault() {
    NativeLibrary.Copy arm =
        new NativeLibrary.Copy("LD", Path.of("/arm/libnccl.so.2"), "is for another processor");
    machine.ncclCopies.addFirst(arm);
    String usable = root.resolve("system loader/libnccl.so.2") + " (system loader)";
    assertEquals(
        List.of("2.30.7: " + usable, "unusable (is for another processor): /arm/libnccl.so.2 (LD)"),
        machine.onlyFinding(LibrariesCheck::findings).details());
    assertEquals(
        "2.30.7, " + usable + ", not loaded",
        CheckRunner.of(machine.state(), List.of()).found().get("libnccl"));
  }

  @Test
  void onlyFaultyCopiesAreAnErrorWithReasons() {
    machine.ncclCopies.clear();
    Path arm = Path.of("/arm/libnccl.so.2");
    machine.ncclCopies.add(new NativeLibrary.Copy("LD", arm, "is for another processor"));
    Finding finding = machine.onlyFinding(LibrariesCheck::findings);
    assertEquals(Severity.ERROR, finding.severity());
    assertEquals("no copy of libnccl can be loaded; found:", finding.title());
    assertEquals(
        List.of("unusable (is for another processor): /arm/libnccl.so.2 (LD)"), finding.details());
    machine.versions.clear();
    assertEquals(
        "/arm/libnccl.so.2 (LD), unusable: is for another processor",
        CheckRunner.of(machine.state(), List.of()).found().get("libnccl"));
  }

  @Test
  void twoLoadedCopiesAreAWarning() {
    machine.mapped.put("nccl", List.of("/a/libnccl.so.2", "/b/libnccl.so.2"));
    Finding finding = machine.onlyFinding(LibrariesCheck::findings);
    assertEquals(Severity.WARNING, finding.severity());
    assertEquals("2 copies of libnccl are loaded in one process:", finding.title());
    assertEquals(List.of("/a/libnccl.so.2", "/b/libnccl.so.2"), finding.details());
  }

  @Test
  void missingLibraryListsEveryAttempt() {
    machine.missing =
        Optional.of(
            new ProbeResult.Missing(
                "cudart", "no", List.of("system loader: libcudart.so.13: no file")));
    Finding finding = machine.onlyFinding(LibrariesCheck::findings);
    assertEquals(Severity.ERROR, finding.severity());
    assertEquals(List.of("system loader: libcudart.so.13: no file"), finding.details());
    assertTrue(finding.remedy().contains("NCCL4J_CUDART_LIBRARY"), finding.remedy());
  }

  @Test
  void missingLibncclIsAnErrorEvenIfNotLoaded() {
    machine.ncclCopies.clear();
    assertEquals(List.of("error: libnccl was not found"), machine.titles(LibrariesCheck::findings));
  }

  @Test
  void unreadableLibncclIsAnError() {
    machine.ncclProblem = Optional.of("/opt/libnccl.so.2 is not a 64-bit ELF file");
    assertEquals(
        List.of("error: libnccl cannot be read: /opt/libnccl.so.2 is not a 64-bit ELF file"),
        machine.titles(LibrariesCheck::findings));
  }

  @Test
  void loadedCopyIsListedFirst() throws IOException {
    Path conda = copy("conda", "2.30.7");
    machine.mapped.put("nccl", List.of(conda.toString()));
    assertEquals(
        "2.30.7: " + conda + " (conda)",
        machine.onlyFinding(LibrariesCheck::findings).details().getFirst());
  }

  @Test
  void standInIsReported() {
    machine.nccl = Optional.of(file(true));
    assertEquals(
        List.of("note: libnccl is the stand-in of nccl4j's tests, not NVIDIA's library"),
        machine.titles(LibrariesCheck::findings));
    Report report = CheckRunner.of(machine.state(), List.of());
    assertEquals(
        "a collective can run, on the stand-in of nccl4j's tests, which is not NCCL",
        report.verdict());
  }

  @Test
  void emulatedCudaIsReported() {
    machine.nccl = Optional.of(file(false));
    machine.gpus.set(0, new Gpu(0, "nccl4j stand-in (no GPU)", 90));
    assertEquals(
        List.of("note: the CUDA runtime is the emulation of nccl4j's tests, not NVIDIA's library"),
        machine.titles(LibrariesCheck::findings));
    assertEquals(List.of(), machine.titles(ArchitectureCheck::findings));
    assertEquals(
        "a collective can run on NCCL, on the emulated CUDA of nccl4j's tests",
        CheckRunner.of(machine.state(), List.of()).verdict());
  }

  @Test
  void gpuWithMachineCodeIsFine() {
    machine.nccl = Optional.of(file(false, new Architecture(90, false)));
    assertEquals(List.of(), machine.titles(ArchitectureCheck::findings));
  }

  @Test
  void gpuWithoutDeviceCodeIsAnError() {
    machine.gpus.set(0, new Gpu(0, "Tesla V100", 70));
    machine.nccl =
        Optional.of(file(false, new Architecture(75, false), new Architecture(120, true)));
    assertEquals(
        List.of(
            "error: GPU 0 (Tesla V100) has compute capability 7.0; libnccl has code for sm_75,"
                + " compute_120"),
        machine.titles(ArchitectureCheck::findings));
  }

  @Test
  void gpuWithPtxOnlyIsAWarning() {
    machine.nccl =
        Optional.of(file(false, new Architecture(80, false), new Architecture(80, true)));
    assertEquals(Severity.WARNING, machine.onlyFinding(ArchitectureCheck::findings).severity());
  }

  @Test
  void unrecognisedDeviceCodeIsUnchecked() {
    machine.nccl = Optional.of(file(false));
    assertEquals(
        List.of("unchecked: whether libnccl has code for these GPUs"),
        machine.titles(ArchitectureCheck::findings));
  }
}
