package io.nccl4j.coverage;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.libraries.Driver;
import io.nccl4j.fixtures.libraries.Releases;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * {@code docs/api-coverage.md} is up to date. {@code -Dapi.coverage=write} writes it before the
 * check.
 */
class ApiCoverageTest {
  private static final String STALE =
      "docs/api-coverage.md is stale; run scripts/lib/api-coverage and commit what it writes";
  private static final Path CALLED = Checkout.ROOT.resolve("target/called");
  private static final boolean WRITE = "write".equals(System.getProperty("api.coverage"));

  /** Needs no recorded calls: takes the columns of called functions from the committed page. */
  @Test
  void pageMatchesHeadersJavadocAndEvidence() throws IOException {
    check(ApiCoverage.render(ApiCoverage.committed()));
  }

  /** Needs the calls recorded by the library's tests and by the suite, so it runs after both. */
  @Test
  @Tag("api-coverage")
  @Tag("slow")
  void pageMatchesFunctionsCalledByTests() throws IOException {
    Path standIn = CALLED.resolve("stand-in.txt");
    Path real = CALLED.resolve("real-libraries.txt");
    requireRecord(standIn);
    requireRecord(real);
    ApiCoverage.Called called =
        new ApiCoverage.Called(
            ApiCoverage.recorded(standIn),
            // This column is about machines without a GPU.
            Driver.present()
                ? ApiCoverage.committed().onRealLibraries()
                : ApiCoverage.recorded(real));
    check(ApiCoverage.render(called));
  }

  private static void check(String page) throws IOException {
    if (WRITE) {
      Files.writeString(ApiCoverage.PAGE, page);
    }
    assertEquals(page, Files.readString(ApiCoverage.PAGE), STALE);
  }

  private static void requireRecord(Path record) {
    boolean strict = "1".equals(System.getenv("REQUIRE_NCCL"));
    if (strict) {
      assertTrue(Files.exists(record), () -> record + " is missing (and REQUIRE_NCCL=1)");
    }
    Assumptions.assumeTrue(
        Files.exists(record), () -> record + " is missing: not all native tests have run");
  }

  @Test
  void everyJavaFormIsPublicMethodOfItsClass() throws IOException {
    Set<String> forms =
        JavaForms.mentions(Checkout.ROOT.resolve("src/main/java")).stream()
            .filter(mention -> !mention.function().endsWith("_t"))
            .map(JavaForms.Mention::member)
            .collect(Collectors.toCollection(TreeSet::new));
    assertTrue(forms.contains("VersionReport.nccl"), "a record's component");
    assertEquals(
        Set.of(), forms.stream().filter(form -> !isPublic(form)).collect(Collectors.toSet()));
  }

  private static boolean isPublic(String form) {
    int end = form.lastIndexOf('.');
    String type = form.substring(0, Math.max(0, end)).replace('.', '$');
    return Stream.of("", "nccl.", "cuda.", "rendezvous.")
        .flatMap(prefix -> methods("io.nccl4j." + prefix + type))
        .anyMatch(method -> method.getName().equals(form.substring(end + 1)));
  }

  private static Stream<Method> methods(String type) {
    try {
      return Stream.of(Class.forName(type).getMethods());
    } catch (ClassNotFoundException e) {
      return Stream.of();
    }
  }

  @Test
  void everyHeaderFunctionIsListedAndHasRelease() throws IOException {
    Set<String> listed = new TreeSet<>(ApiCoverage.functions("nccl"));
    assertEquals(listed, new TreeSet<>(Releases.byFunction().keySet()));
    Path headers = Checkout.ROOT.resolve("target/native/nvidia/nccl/include");
    Assumptions.assumeTrue(Files.exists(headers), "nccl.h has not been fetched");
    Set<String> declared =
        functions(
            headers.resolve("nccl.h"),
            "^\\s*(?:ncclResult_t|const char\\s*\\*|void)\\s+(nccl\\w+)\\(");
    assertEquals(64, declared.size());
    Set<String> ofDevices =
        functions(headers.resolve("nccl_device/core.h"), "__host__ \\w+ (nccl\\w+)\\(");
    ofDevices.retainAll(
        Set.of(
            "ncclCommQueryProperties",
            "ncclGetPeerDevicePointer",
            "ncclGetLsaMultimemDevicePointer"));
    assertEquals(3, ofDevices.size());
    declared.addAll(ofDevices);
    assertEquals(declared, listed);
  }

  private static Set<String> functions(Path header, String declaration) throws IOException {
    return Pattern.compile(declaration, Pattern.MULTILINE)
        .matcher(Files.readString(header))
        .results()
        .map(result -> result.group(1))
        .collect(Collectors.toCollection(TreeSet::new));
  }

  @Test
  void gpuEvidenceCountsAndStandInEvidenceDoesNot(@TempDir Path folder) throws IOException {
    Files.createDirectories(folder.resolve("2026-11"));
    Files.writeString(
        folder.resolve("2026-11/evidence.json"),
        """
        {"device": "NVIDIA H200", "steps": [{"facts": {"functionsCalled": "ncclSend ncclRecv"}},
          {"facts": {"functionsCalled": "cudaMalloc"}}]}
        """);
    Files.writeString(
        folder.resolve("stand-in.json"),
        """
        {"device": "nccl4j stand-in (no GPU)", "facts": {"functionsCalled": "ncclReduce"}}
        """);
    assertEquals(Set.of("ncclSend", "ncclRecv", "cudaMalloc"), ApiCoverage.calledOnGpu(folder));
  }

  @Test
  void javadocNamesFirstReleaseOfEachFunction() throws IOException {
    assertEquals(Map.of(), ApiCoverage.wrongReleasesInJavadoc());
  }
}
