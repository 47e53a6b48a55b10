package io.nccl4j.reference;

import io.nccl4j.internal.reference.transport.SharedMemoryFiles;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Lists the files of shared memory that processes have created; they exist for a short time. */
final class SharedNames {
  private SharedNames() {}

  static Set<Path> of(Collection<Long> processes) throws IOException {
    Set<Path> names = new HashSet<>();
    for (String directory : List.of("/dev/shm", System.getProperty("java.io.tmpdir"))) {
      if (Files.isDirectory(Path.of(directory))) {
        try (Stream<Path> files = Files.list(Path.of(directory))) {
          files
              .filter(SharedMemoryFiles::hasName)
              .filter(file -> processes.contains(creator(file)))
              .forEach(names::add);
        }
      }
    }
    return names;
  }

  private static long creator(Path file) {
    return Long.parseLong(file.getFileName().toString().split("-", -1)[2]);
  }

  /** Returns the files that still exist after a while. */
  static Set<Path> thatStay(Collection<Long> processes) throws IOException, InterruptedException {
    Set<Path> staying = of(processes);
    for (int attempt = 0; attempt < 20 && !staying.isEmpty(); attempt++) {
      TimeUnit.MILLISECONDS.sleep(100);
      staying.retainAll(of(processes));
    }
    return staying;
  }
}
