package io.nccl4j.tools.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests of the checks on library copies and their device code. */
class LibrariesTest {
  @TempDir Path temp;

  private Path root;
  private Fixture machine;

  @BeforeEach
  void createMachineWithOneCopy() throws IOException {
    root = temp.toRealPath();
    machine = new Fixture(root);
    copy("usr/lib/x86_64-linux-gnu", "2.30.7");
  }

  private Path copy(String folder, String release) throws IOException {
    return new ElfFile()
        .constants("NCCL version " + release + "+cuda13.3")
        .write(root.resolve(folder).resolve("libnccl.so.2"));
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
    assertEquals(List.of(), machine.titles(new LibrariesCheck()));
  }

  /** In the C locale, a name that is not ASCII is invalid; in others, half a character is. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "CONDA_PREFIX",
        "CUDA_HOME",
        "CUDA_PATH",
        "LD_LIBRARY_PATH",
        "NCCL4J_NCCL_LIBRARY"
      })
  void folderThatLocaleCannotNameIsSkipped(String variable) {
    machine.set(variable, "/tmp/\uD800");
    assertEquals(List.of(), machine.titles(new LibrariesCheck()));
  }

  @Test
  void copiesOfOneReleaseAreANote() throws IOException {
    Path wheel = copy("conda/lib", "2.30.7");
    machine.set("CONDA_PREFIX", "/conda");
    Finding finding = machine.onlyFinding(new LibrariesCheck());
    assertEquals(Severity.NOTE, finding.severity());
    assertEquals("2 copies of libnccl were found; nccl4j uses the first:", finding.title());
    assertEquals(
        List.of(
            "2.30.7: "
                + root.resolve("usr/lib/x86_64-linux-gnu/libnccl.so.2")
                + " (the system loader)",
            "2.30.7: " + wheel + " (CONDA_PREFIX)"),
        finding.details());
  }

  @Test
  void copiesOfTwoReleasesAreAWarning() throws IOException {
    Path named = copy("opt/nccl", "2.27.3");
    machine.set("NCCL4J_NCCL_LIBRARY", "/opt/nccl");
    Finding finding = machine.onlyFinding(new LibrariesCheck());
    assertEquals(Severity.WARNING, finding.severity());
    assertEquals("2.27.3: " + named + " (NCCL4J_NCCL_LIBRARY)", finding.details().getFirst());
  }

  @Test
  void symbolicLinkIsNotASecondCopy() throws IOException {
    Path link = Files.createDirectories(root.resolve("lib64")).resolve("libnccl.so.2");
    Files.createSymbolicLink(link, root.resolve("usr/lib/x86_64-linux-gnu/libnccl.so.2"));
    machine.set("LD_LIBRARY_PATH", "/lib64:");
    assertEquals(List.of(), machine.titles(new LibrariesCheck()));
  }

  @Test
  void loaderConfigurationNeedNotBeUtf8() throws IOException {
    Path configured = copy("opt/nccl", "2.27.3");
    Path file = machine.folder("/etc/ld.so.conf.d").resolve("nccl.conf");
    Files.write(file, "# biblioth\u00e8que\n/opt/nccl\n".getBytes(StandardCharsets.ISO_8859_1));
    List<LibraryCopy> copies = LibraryCopy.of(NativeLibraryName.NCCL, machine.machine(), List.of());
    assertEquals(new LibraryCopy("the system loader", configured), copies.getFirst());
  }

  @Test
  void pythonWheelsAreFound() throws IOException {
    Path wheel = copy("venv/site-packages/nvidia/nccl/lib", "2.30.7");
    List<LibraryCopy> copies =
        LibraryCopy.of(
            NativeLibraryName.NCCL, machine.machine(), List.of(root.resolve("venv/site-packages")));
    assertEquals(new LibraryCopy("a pip wheel of python3", wheel), copies.getLast());
  }

  @Test
  void twoLoadedCopiesAreAWarning() {
    machine.mapped.put("nccl", List.of("/a/libnccl.so.2", "/b/libnccl.so.2"));
    Finding finding = machine.onlyFinding(new LibrariesCheck());
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
    Finding finding = machine.onlyFinding(new LibrariesCheck());
    assertEquals(Severity.ERROR, finding.severity());
    assertEquals(List.of("system loader: libcudart.so.13: no file"), finding.details());
    assertTrue(finding.remedy().contains("NCCL4J_CUDART_LIBRARY"), finding.remedy());
  }

  @Test
  void missingLibncclIsAnErrorEvenIfNotLoaded() throws IOException {
    Files.delete(root.resolve("usr/lib/x86_64-linux-gnu/libnccl.so.2"));
    assertEquals(List.of("error: libnccl was not found"), machine.titles(new LibrariesCheck()));
  }

  @Test
  void unreadableLibncclIsAnError() {
    machine.ncclProblem = Optional.of("/opt/libnccl.so.2 is not a 64-bit ELF file");
    assertEquals(
        List.of("error: libnccl cannot be read: /opt/libnccl.so.2 is not a 64-bit ELF file"),
        machine.titles(new LibrariesCheck()));
  }

  @Test
  void loadedCopyIsListedFirst() throws IOException {
    Path conda = copy("conda/lib", "2.30.7");
    machine.set("CONDA_PREFIX", "/conda").mapped.put("nccl", List.of(conda.toString()));
    assertEquals(
        "2.30.7: " + conda + " (CONDA_PREFIX)",
        machine.onlyFinding(new LibrariesCheck()).details().getFirst());
  }

  @Test
  void standInIsReported() {
    machine.nccl = Optional.of(file(true));
    assertEquals(
        List.of("note: libnccl is the stand-in of nccl4j's tests, not NVIDIA's library"),
        machine.titles(new LibrariesCheck()));
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
        machine.titles(new LibrariesCheck()));
    assertEquals(List.of(), machine.titles(new ArchitectureCheck()));
    assertEquals(
        "a collective can run on NCCL, on the emulated CUDA of nccl4j's tests",
        CheckRunner.of(machine.state(), List.of()).verdict());
  }

  @Test
  void gpuWithMachineCodeIsFine() {
    machine.nccl = Optional.of(file(false, new Architecture(90, false)));
    assertEquals(List.of(), machine.titles(new ArchitectureCheck()));
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
        machine.titles(new ArchitectureCheck()));
  }

  @Test
  void gpuWithPtxOnlyIsAWarning() {
    machine.nccl =
        Optional.of(file(false, new Architecture(80, false), new Architecture(80, true)));
    assertEquals(Severity.WARNING, machine.onlyFinding(new ArchitectureCheck()).severity());
  }

  @Test
  void unrecognisedDeviceCodeIsUnchecked() {
    machine.nccl = Optional.of(file(false));
    assertEquals(
        List.of("unchecked: whether libnccl has code for these GPUs"),
        machine.titles(new ArchitectureCheck()));
  }
}
