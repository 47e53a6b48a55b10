package io.nccl4j.architecture;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.tngtech.archunit.core.domain.Dependency;
import com.tngtech.archunit.core.domain.JavaClass;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/**
 * Tests that packages form no dependency cycle, and that the cycles of classes within a package are
 * small. A nested class counts as its top-level class.
 */
class DependencyCyclesTest {
  private static final String CONTRACT = "io.nccl4j";
  private static final int LARGEST_COMPONENT = 6;

  private static final Map<String, Set<String>> CLASSES = dependencies();

  /** Finds the sets of nodes that reach each other, by Tarjan's algorithm. */
  private static final class Components {
    private final Map<String, Set<String>> graph;
    private final Map<String, Integer> index = new HashMap<>();
    private final Map<String, Integer> lowest = new HashMap<>();
    private final Deque<String> open = new ArrayDeque<>();
    private final List<Set<String>> found = new ArrayList<>();

    Components(Map<String, Set<String>> graph) {
      this.graph = graph;
      graph.keySet().stream().filter(node -> !index.containsKey(node)).forEach(this::visit);
    }

    private void visit(String node) {
      int own = index.size();
      index.put(node, own);
      lowest.put(node, own);
      open.push(node);
      for (String next : graph.get(node)) {
        if (!index.containsKey(next)) {
          visit(next);
          lowest.merge(node, lowest.get(next), Math::min);
        } else if (open.contains(next)) {
          lowest.merge(node, index.get(next), Math::min);
        }
      }
      if (lowest.get(node) == own) {
        Set<String> component = new TreeSet<>();
        while (component.add(open.pop()) && !component.contains(node)) {
          // Pops up to and including the node.
        }
        found.add(component);
      }
    }

    /** Returns the largest component. */
    Set<String> largest() {
      return found.stream().reduce((a, b) -> a.size() >= b.size() ? a : b).orElseThrow();
    }

    /** Returns the nodes that are in a cycle with others. */
    Set<String> inCycles() {
      return found.stream()
          .filter(component -> component.size() > 1)
          .flatMap(Collection::stream)
          .collect(Collectors.toCollection(TreeSet::new));
    }
  }

  private static Map<String, Set<String>> dependencies() {
    Map<String, Set<String>> graph = new TreeMap<>();
    for (JavaClass type : Artifacts.classes()) {
      if (isHandWritten(type)) {
        Set<String> targets =
            graph.computeIfAbsent(outermost(type).getName(), name -> new TreeSet<>());
        type.getDirectDependenciesFromSelf().stream()
            .map(Dependency::getTargetClass)
            .map(JavaClass::getBaseComponentType)
            .filter(DependencyCyclesTest::isHandWritten)
            .forEach(target -> targets.add(outermost(target).getName()));
      }
    }
    return graph;
  }

  private static boolean isHandWritten(JavaClass type) {
    String name = type.getPackageName();
    return name.equals(CONTRACT)
        || (name.startsWith(CONTRACT + ".") && !name.startsWith("io.nccl4j.bindings."));
  }

  private static JavaClass outermost(JavaClass type) {
    JavaClass outer = type;
    while (outer.getEnclosingClass().isPresent()) {
      outer = outer.getEnclosingClass().get();
    }
    return outer;
  }

  private static String packageOf(String className) {
    return className.substring(0, className.lastIndexOf('.'));
  }

  /** Returns the package; the contract and the driver interfaces count as one. */
  private static String sliceOf(String className) {
    String name = packageOf(className);
    return name.equals("io.nccl4j.spi") ? CONTRACT : name;
  }

  private static Map<String, Set<String>> betweenPackages() {
    Map<String, Set<String>> graph = new TreeMap<>();
    CLASSES.forEach(
        (type, targets) -> {
          Set<String> packages = graph.computeIfAbsent(sliceOf(type), name -> new TreeSet<>());
          if (!type.equals("io.nccl4j.Backends")) {
            targets.stream().map(DependencyCyclesTest::sliceOf).forEach(packages::add);
          }
        });
    return graph;
  }

  private static Map<String, Set<String>> within(String packageName) {
    Map<String, Set<String>> graph = new TreeMap<>();
    CLASSES.forEach(
        (type, targets) -> {
          if (packageOf(type).equals(packageName)) {
            graph.put(
                type,
                targets.stream()
                    .filter(target -> packageOf(target).equals(packageName))
                    .collect(Collectors.toCollection(TreeSet::new)));
          }
        });
    return graph;
  }

  @Test
  void components_ofAKnownGraph() {
    Components components =
        new Components(
            new TreeMap<>(
                Map.of(
                    "a", Set.of("b"),
                    "b", Set.of("c", "d"),
                    "c", Set.of("a"),
                    "d", Set.of("e"),
                    "e", Set.of("d"),
                    "f", Set.of("a", "f"))));
    assertEquals(Set.of("a", "b", "c"), components.largest());
    assertEquals(Set.of("a", "b", "c", "d", "e"), components.inCycles());
  }

  @Test
  void packages_haveNoLargeComponent() {
    Set<String> packages =
        CLASSES.keySet().stream()
            .map(DependencyCyclesTest::packageOf)
            .collect(Collectors.toCollection(TreeSet::new));
    assertTrue(packages.contains("io.nccl4j.reference"), () -> "only found " + packages);
    for (String name : packages) {
      Set<String> largest = new Components(within(name)).largest();
      assertTrue(
          largest.size() <= LARGEST_COMPONENT,
          () -> name + ": " + largest.size() + " classes depend on each other: " + largest);
    }
  }

  @Test
  void packages_formNoCycle() {
    assertEquals(Set.of(), new Components(betweenPackages()).inCycles());
  }
}
