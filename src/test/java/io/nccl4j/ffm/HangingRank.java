package io.nccl4j.ffm;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.TimeoutAction;
import io.nccl4j.fixtures.libraries.StandIn;
import java.time.Duration;

/** The program of {@link WatchdogTest}: waits for a collective that another rank does not call. */
public final class HangingRank {
  private HangingRank() {}

  /**
   * Waits, and would end with status 3 after the wait.
   *
   * @param arguments the timeout in seconds, and whether the call waits, not the stream
   */
  public static void main(String[] arguments) {
    CommunicatorConfig config =
        CommunicatorConfig.defaults()
            .withTimeout(Duration.ofSeconds(Integer.parseInt(arguments[0])))
            .withTimeoutAction(TimeoutAction.EXIT);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
    Pair pair = new Pair(config);
    StandIn.connect(Boolean.parseBoolean(arguments[1]));
    Stream stream = pair.rank(0).newStream();
    Buffer value = pair.rank(0).newBuffer(DataType.FLOAT32, 1);
    System.out.println("waits");
    pair.rank(0).allReduce(value, value, ReduceOp.SUM, stream);
    stream.synchronize(Duration.ofMinutes(1));
    System.exit(3);
  }
}
