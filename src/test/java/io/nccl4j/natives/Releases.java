package io.nccl4j.natives;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SortedMap;
import java.util.TreeMap;

/** {@code headers/nccl.releases}: what NVIDIA's release tags say of when each function came. */
public final class Releases {
  private static final Path FILE =
      Path.of(System.getProperty("basedir", "."), "headers/nccl.releases");

  private Releases() {}

  /** Returns the first release of each function, such as 2.18.1. */
  public static SortedMap<String, String> byFunction() {
    SortedMap<String, String> releases = new TreeMap<>();
    try {
      for (String line : Files.readAllLines(FILE)) {
        if (!line.startsWith("#")) {
          int space = line.indexOf(' ');
          releases.put(line.substring(0, space), line.substring(space + 1));
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return releases;
  }

  /** Compares two releases by their numbers; a missing one counts as 0. */
  public static int compare(String one, String other) {
    String[] mine = one.split("\\.", -1);
    String[] theirs = other.split("\\.", -1);
    for (int i = 0; i < 3; i++) {
      int difference = Integer.compare(part(mine, i), part(theirs, i));
      if (difference != 0) {
        return difference;
      }
    }
    return 0;
  }

  private static int part(String[] parts, int index) {
    return index < parts.length ? Integer.parseInt(parts[index]) : 0;
  }
}
