package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests that warnings of the stand-in's NCCL reach Log4j only if that is wanted and possible. */
@OnStandIn
class NcclLogProcessTest {
  private static final String ON = "-Dio.nccl4j.nccl.log=true";
  private static final String OFF = "-Dio.nccl4j.nccl.log=false";
  private static final String LOGGED = " io.nccl4j.nccl.log: ";
  private static final String WARNING =
      "WARN io\\.nccl4j\\.nccl\\.log: \\[[-0-9: ]+] \\S+:\\d+:\\d+ \\[0] errors.c:1 \\(warn\\) "
          + "NCCL WARN nccl4j stand-in: GetUniqueId : out argument is NULL";

  @TempDir private Path temp;

  private static List<String> logged(List<String> lines) {
    return lines.stream().filter(line -> line.contains(LOGGED)).toList();
  }

  private static void assertWarned(List<String> lines) {
    List<String> logged = logged(lines);
    assertEquals(1, logged.size(), lines::toString);
    assertTrue(logged.getFirst().matches(WARNING), lines::toString);
    assertTrue(lines.contains("result 4"), lines::toString);
  }

  @Test
  void propertySendsWarningsToLog4j() throws Exception {
    List<String> lines = LoggedCalls.run(temp, Map.of(), ON);
    assertWarned(lines);
    assertTrue(lines.contains("NCCL_DEBUG is WARN"), lines::toString);
  }

  @Test
  void variableSendsWarningsAndKeepsTheLevel() throws Exception {
    Map<String, String> environment = Map.of("NCCL4J_NCCL_LOG", "true", "NCCL_DEBUG", "INFO");
    List<String> lines = LoggedCalls.run(temp, environment, "-Dunused=1");
    assertWarned(lines);
    assertTrue(lines.contains("NCCL_DEBUG is INFO"), lines::toString);
  }

  @Test
  void propertyPrecedesTheVariable() throws Exception {
    List<String> lines = LoggedCalls.run(temp, Map.of("NCCL4J_NCCL_LOG", "true"), OFF);
    assertEquals(List.of(), logged(lines));
    assertTrue(lines.contains("NCCL_DEBUG is not set"), lines::toString);
    assertTrue(lines.contains("NCCL_DEBUG_FILE is not set"), lines::toString);
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "TRUE", "INFO"})
  void otherValuesAreRejected(String value) throws Exception {
    List<String> lines = LoggedCalls.run(temp, Map.of(), "-Dio.nccl4j.nccl.log=" + value);
    assertEquals(
        "io.nccl4j.nccl.log is \"" + value + "\"; it must be true or false", lines.getLast());
  }

  @Test
  void fileOfTheUserIsKept() throws Exception {
    Path file = temp.resolve("nccl.log");
    Map<String, String> environment =
        Map.of("NCCL_DEBUG", "WARN", "NCCL_DEBUG_FILE", file.toString());
    List<String> lines = LoggedCalls.run(temp, environment, ON);
    assertEquals(
        List.of(
            "WARN"
                + LOGGED
                + "NCCL's log stays in "
                + file
                + ", which the variable NCCL_DEBUG_FILE names"),
        logged(lines));
    assertTrue(Files.readString(file).endsWith("out argument is NULL\n"));
  }

  @Test
  void libraryThatOtherCodeHasLoadedIsLeftAlone() throws Exception {
    List<String> lines =
        LoggedCalls.run(temp, Map.of(), ON, Requirement.library("nccl").toString());
    assertEquals(
        List.of(
            "WARN"
                + LOGGED
                + "NCCL's log stays where it is: other code of this process has loaded NCCL before"
                + " nccl4j"),
        logged(lines));
    assertTrue(lines.contains("NCCL_DEBUG_FILE is not set"), lines::toString);
  }
}
