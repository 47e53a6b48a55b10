package io.nccl4j.ras;

import java.io.IOException;
import org.jspecify.annotations.NullMarked;

/**
 * A change in a job that {@link RasClient#monitor} reports.
 *
 * @param timestamp the local time of the reporting process, such as {@code 2026-11-27 21:00:00}
 * @param group {@code LIFECYCLE} or {@code TRACE}
 * @param event what happened, such as {@code PEER_DEAD}
 * @param host the address of the process concerned, with its port if RAS knows nothing else of it;
 *     an empty string if the event concerns none
 * @param pid its process id, or -1
 * @param details NCCL's text, or an empty string
 */
@NullMarked
public record RasEvent(
    String timestamp, String group, String event, String host, int pid, String details) {
  static RasEvent read(JsonReader json) throws IOException {
    String timestamp = "";
    String group = "";
    String event = "";
    String host = "";
    int pid = -1;
    String details = "";
    json.begin('{');
    while (json.next('}')) {
      switch (json.name()) {
        case "timestamp" -> timestamp = json.string();
        case "group" -> group = json.string();
        case "event" -> event = json.string();
        case "details" -> details = json.string();
        case "peer" -> {
          json.begin('{');
          while (json.next('}')) {
            switch (json.name()) {
              case "host", "addr" -> host = json.string();
              case "pid" -> pid = json.integer();
              default -> json.skip();
            }
          }
        }
        default -> json.skip();
      }
    }
    return new RasEvent(timestamp, group, event, host, pid, details);
  }
}
