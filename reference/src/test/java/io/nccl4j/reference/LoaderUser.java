package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.io.File;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.FutureTask;

/** The program of {@link ClassLoadersTest}: runs collectives in several class loaders. */
public final class LoaderUser {
  private static final int LOADERS = 3;
  private static final Duration COLLECTED_WITHIN = Duration.ofSeconds(30);

  private LoaderUser() {}

  /** Opens a backend and all-reduces on two ranks, while the other loaders do, or alone. */
  public static final class Application implements Callable<String> {
    private final String backend;
    private final CyclicBarrier opened;

    /** Creates the application; called by reflection. */
    public Application(String backend, CyclicBarrier opened) {
      this.backend = backend;
      this.opened = opened;
    }

    @Override
    public String call() throws Exception {
      try (Backend open = backend.equals("nccl") ? Backend.auto() : Backend.reference(2)) {
        opened.await();
        open.runRanks(
            2,
            comm -> {
              try (Stream stream = comm.newStream();
                  Buffer buffer = comm.newBuffer(DataType.FLOAT32, 3)) {
                float[] sum = {1, 2, 3};
                buffer.copyFromAsync(sum, stream);
                comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
                buffer.copyTo(sum, stream);
                if (sum[2] != 6) {
                  throw new IllegalStateException("3 + 3 = " + sum[2]);
                }
              }
            });
        return open.name();
      }
    }
  }

  /** Arguments: the backend, and whether the loaders have it at the same time. */
  public static void main(String[] arguments) throws Exception {
    boolean together = arguments[1].equals("together");
    CyclicBarrier opened = new CyclicBarrier(together ? LOADERS : 1);
    List<WeakReference<ClassLoader>> loaders = new ArrayList<>();
    List<FutureTask<String>> runs = new ArrayList<>();
    for (int i = 0; i < LOADERS; i++) {
      FutureTask<String> run = start(arguments[0], opened, loaders);
      runs.add(run);
      if (!together) {
        System.out.println(run.get());
      }
    }
    for (FutureTask<String> run : together ? runs : List.<FutureTask<String>>of()) {
      System.out.println(run.get());
    }
    runs.clear();
    long start = System.nanoTime();
    while (loaders.stream().anyMatch(loader -> loader.get() != null)
        && System.nanoTime() - start < COLLECTED_WITHIN.toNanos()) {
      System.gc();
      Thread.sleep(100);
    }
    System.out.println(
        loaders.stream().filter(loader -> loader.get() != null).count() + " loaders are left");
  }

  /** Starts the application as an application server does: its loader is the thread's context. */
  private static FutureTask<String> start(
      String backend, CyclicBarrier opened, List<WeakReference<ClassLoader>> loaders)
      throws Exception {
    List<URL> classPath = new ArrayList<>();
    for (String entry : System.getProperty("java.class.path").split(File.pathSeparator, -1)) {
      // Its shutdown hook would keep the loader.
      if (!entry.contains("log4j-core")) {
        classPath.add(Path.of(entry).toUri().toURL());
      }
    }
    URLClassLoader loader =
        new URLClassLoader(classPath.toArray(URL[]::new), ClassLoader.getPlatformClassLoader());
    loaders.add(new WeakReference<>(loader));
    @SuppressWarnings("unchecked")
    Callable<String> application =
        (Callable<String>)
            loader
                .loadClass(Application.class.getName())
                .getConstructor(String.class, CyclicBarrier.class)
                .newInstance(backend, opened);
    FutureTask<String> run =
        new FutureTask<>(
            () -> {
              try (loader) {
                return application.call();
              }
            });
    Thread thread = new Thread(run);
    thread.setContextClassLoader(loader);
    thread.start();
    return run;
  }
}
