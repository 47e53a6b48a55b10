package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.logging.log4j.Logger;
import org.junit.jupiter.api.Test;

class RateLimitedWarningTest {
  private final AtomicLong now = new AtomicLong(Long.MAX_VALUE - 5);
  private final RateLimitedWarning warning = new RateLimitedWarning(now::get);
  private final List<String> logged = new ArrayList<>();
  private boolean loggerFails;

  private final Logger logger =
      (Logger)
          Proxy.newProxyInstance(
              Logger.class.getClassLoader(),
              new Class<?>[] {Logger.class},
              (proxy, method, arguments) -> {
                if (loggerFails) {
                  throw new OutOfMemoryError("thrown by a test");
                }
                logged.add(method.getName() + ": " + arguments[0]);
                return null;
              });

  private void event(long secondsLater) {
    now.addAndGet(TimeUnit.SECONDS.toNanos(secondsLater));
    warning.log(logger, "it failed");
  }

  @Test
  void eventsOfOneMinuteAreLoggedOnceWithACount() {
    event(0);
    event(1);
    event(58);
    assertEquals(List.of("warn: it failed"), logged);
    event(1);
    event(60);
    assertEquals(
        List.of("warn: it failed", "warn: it failed (3 since the last warning)", "warn: it failed"),
        logged);
  }

  @Test
  void nextEventRetriesAFailedLogger() {
    loggerFails = true;
    event(0);
    loggerFails = false;
    event(1);
    assertEquals(List.of("warn: it failed (2 since the last warning)"), logged);
  }
}
