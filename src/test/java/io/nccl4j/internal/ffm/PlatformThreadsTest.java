package io.nccl4j.internal.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Calls of virtual threads that run on a platform thread. */
class PlatformThreadsTest {
  private static final Duration SOON = Duration.ofSeconds(20);

  /** An error whose message the thread of the call has no memory for. */
  private static final class Indescribable extends OutOfMemoryError {
    private static final long serialVersionUID = 1;

    @Override
    public String getMessage() {
      if (Thread.currentThread().getName().startsWith("nccl4j-")) {
        throw new OutOfMemoryError("while an error is described");
      }
      return super.getMessage();
    }
  }

  @Test
  void errorInThePlatformThreadEndsTheWait() throws Exception {
    Error failure = new Indescribable();
    AtomicReference<Throwable> thrown = new AtomicReference<>();
    Runnable call =
        () -> {
          throw failure;
        };
    Thread waiting =
        Thread.ofVirtual()
            .start(
                () -> {
                  try {
                    PlatformThreads.run("test", call);
                  } catch (Throwable e) {
                    thrown.set(e);
                  }
                });
    assertTrue(waiting.join(SOON), "the wait has not ended");
    assertEquals(failure, thrown.get());
  }
}
