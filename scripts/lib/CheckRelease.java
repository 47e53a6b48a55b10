import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.jar.JarFile;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.xpath.XPath;
import javax.xml.xpath.XPathConstants;
import javax.xml.xpath.XPathFactory;
import org.w3c.dom.Document;
import org.w3c.dom.NodeList;

/**
 * Checks the artifacts in a folder as Maven Central does before it publishes them, except for their
 * signatures, and what nccl4j promises besides: licences in the jars, and an SBOM.
 *
 * <p>Run by scripts/release: {@code java CheckRelease.java FOLDER VERSION}. Prints a line for each
 * artifact, and every fault; exits with 1 if there is one.
 */
final class CheckRelease {
  private static final String GROUP = "io.github.nccl4j";

  private static final List<String> OWN = List.of("name", "description");

  /** What Central requires of a POM or its parents. */
  private static final List<String> INHERITED =
      List.of(
          "url",
          "licenses/license/name",
          "licenses/license/url",
          "developers/developer/name",
          "scm/connection",
          "scm/developerConnection",
          "scm/url");

  private final XPath xpath = XPathFactory.newInstance().newXPath();
  private final Path folder;
  private final String version;
  private final Map<String, Document> poms = new TreeMap<>();
  private final Map<String, Set<Path>> files = new TreeMap<>();
  private final List<String> faults = new ArrayList<>();

  private CheckRelease(Path folder, String version) {
    this.folder = folder;
    this.version = version;
  }

  public static void main(String[] args) throws Exception {
    CheckRelease check = new CheckRelease(Path.of(args[0]), args[1]);
    check.read();
    for (String artifact : check.poms.keySet()) {
      check.artifact(artifact);
    }
    check.bom();
    check.faults.forEach(fault -> System.err.println("release: " + fault));
    if (!check.faults.isEmpty()) {
      System.exit(1);
    }
  }

  private void require(boolean holds, String fault) {
    if (!holds) {
      faults.add(fault);
    }
  }

  private void read() throws Exception {
    List<Path> all;
    try (Stream<Path> walk = Files.walk(folder)) {
      all =
          walk.filter(Files::isRegularFile)
              .filter(file -> !file.getFileName().toString().startsWith("maven-metadata"))
              .toList();
    }
    for (Path file : all) {
      Path directory = file.getParent();
      String artifact = directory.getParent().getFileName().toString();
      Path expected = folder.resolve(GROUP.replace('.', '/')).resolve(artifact).resolve(version);
      require(
          directory.equals(expected)
              && file.getFileName().toString().startsWith(artifact + "-" + version),
          file + " is not named GROUP/ARTIFACT/VERSION/ARTIFACT-VERSION...");
      files.computeIfAbsent(artifact, _ -> new TreeSet<>()).add(file);
      if (file.toString().endsWith(".pom")) {
        poms.put(
            artifact,
            DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(file.toFile()));
      }
    }
    require(poms.keySet().equals(files.keySet()), "artifacts without a POM: " + files.keySet());
  }

  private void artifact(String artifact) throws Exception {
    int before = faults.size();
    pom(artifact);
    boolean jar = jar(artifact);
    if (jar) {
      contents(artifact, "", "META-INF/LICENSE", "META-INF/NOTICE", "META-INF/MANIFEST.MF");
      contents(artifact, "-sources", ".java", "META-INF/LICENSE");
      contents(artifact, "-javadoc", "index.html");
    }
    if (artifact.equals("nccl4j-tools")) {
      contents(artifact, "-all", "META-INF/LICENSE", "META-INF/NOTICE", "META-INF/MANIFEST.MF");
    }
    Path sbom = file(artifact, "-cyclonedx.json");
    require(
        Files.exists(sbom)
            && Files.readString(sbom)
                .contains("pkg:maven/" + GROUP + "/" + artifact + "@" + version),
        artifact + ": has no SBOM that names it");
    for (Path file : files.get(artifact)) {
      checksums(file);
    }
    System.out.printf(
        "  %-24s %s, %d files: %s%n",
        artifact,
        jar ? "jar, sources, Javadoc, POM, SBOM, checksums" : "POM, SBOM, checksums",
        files.get(artifact).size(),
        faults.size() == before ? "OK" : "FAULTY");
  }

  private boolean jar(String artifact) throws Exception {
    return !value(artifact, "packaging").equals("pom");
  }

  private Path file(String artifact, String ending) {
    return folder
        .resolve(GROUP.replace('.', '/'))
        .resolve(artifact)
        .resolve(version)
        .resolve(artifact + "-" + version + ending);
  }

  private void pom(String artifact) throws Exception {
    require(value(artifact, "modelVersion").equals("4.0.0"), artifact + ": has no modelVersion");
    require(value(artifact, "artifactId").equals(artifact), artifact + ": has another artifactId");
    require(inherited(artifact, "groupId").equals(GROUP), artifact + ": is not in " + GROUP);
    require(inherited(artifact, "version").equals(version), artifact + ": is not " + version);
    for (String path : OWN) {
      require(!value(artifact, path).isEmpty(), artifact + ": its POM has no " + path);
    }
    for (String path : INHERITED) {
      require(!inherited(artifact, path).isEmpty(), artifact + ": its POM has no " + path);
    }
    require(
        !Files.readString(file(artifact, ".pom")).contains("-SNAPSHOT"),
        artifact + ": its POM names a snapshot");
    for (String dependency :
        values(artifact, "dependencies/dependency[groupId='" + GROUP + "']/artifactId")) {
      require(
          poms.containsKey(dependency),
          artifact + ": depends on " + dependency + ", which is not published");
    }
  }

  private void bom() throws Exception {
    Set<String> jars = new TreeSet<>();
    for (String artifact : poms.keySet()) {
      if (jar(artifact)) {
        jars.add(artifact);
      }
    }
    Set<String> listed =
        new TreeSet<>(
            values("nccl4j-bom", "dependencyManagement/dependencies/dependency/artifactId"));
    require(listed.equals(jars), "the BOM lists " + listed + ", but published are " + jars);
    Set<String> versions =
        new TreeSet<>(values("nccl4j-bom", "dependencyManagement/dependencies/dependency/version"));
    require(
        Set.of(version, "${project.version}").containsAll(versions),
        "the BOM has the versions " + versions);
  }

  private String value(String artifact, String path) throws Exception {
    Document pom = poms.get(artifact);
    return pom == null ? "" : xpath.evaluate("/project/" + path, pom).strip();
  }

  private List<String> values(String artifact, String path) throws Exception {
    NodeList nodes =
        (NodeList)
            xpath.evaluate("/project/" + path, poms.get(artifact), XPathConstants.NODESET);
    List<String> values = new ArrayList<>();
    for (int i = 0; i < nodes.getLength(); i++) {
      values.add(nodes.item(i).getTextContent().strip());
    }
    return values;
  }

  /** Returns a value of a POM, or that of the closest parent that has it. */
  private String inherited(String artifact, String path) throws Exception {
    for (String pom = artifact; !pom.isEmpty(); pom = value(pom, "parent/artifactId")) {
      String value = value(pom, path);
      if (!value.isEmpty()) {
        return value;
      }
    }
    return "";
  }

  /** Checks that a jar can be read and has entries with these endings. */
  private void contents(String artifact, String classifier, String... endings) throws IOException {
    Path file = file(artifact, classifier + ".jar");
    if (!Files.exists(file)) {
      faults.add(artifact + ": " + file.getFileName() + " is missing");
      return;
    }
    try (JarFile jar = new JarFile(file.toFile())) {
      List<String> names = jar.stream().map(entry -> entry.getName()).toList();
      for (String ending : endings) {
        require(
            names.stream().anyMatch(name -> name.endsWith(ending)),
            artifact + ": " + file.getFileName() + " has no " + ending);
      }
    }
  }

  private void checksums(Path file) throws Exception {
    String name = file.toString();
    if (name.endsWith(".md5") || name.endsWith(".sha1")) {
      return;
    }
    for (Map.Entry<String, String> kind : Map.of("MD5", ".md5", "SHA-1", ".sha1").entrySet()) {
      byte[] digest = MessageDigest.getInstance(kind.getKey()).digest(Files.readAllBytes(file));
      Path sum = Path.of(name + kind.getValue());
      require(
          Files.exists(sum)
              && Files.readString(sum).strip().equals(HexFormat.of().formatHex(digest)),
          name + " has no right " + kind.getValue());
    }
  }
}
