package io.nccl4j.tools.explain;

import io.nccl4j.internal.schedule.Step;
import java.util.List;

/**
 * One step of one rank, and its result.
 *
 * @param step the step
 * @param value the rank's value of the slice after the step: the ranks whose data it contains
 * @param changes whether the step changed the value
 */
record Move(Step step, String value, boolean changes) {
  /** Describes the move in a sentence. */
  String sentence(boolean elements) {
    StringBuilder text = new StringBuilder("rank ").append(step.rank());
    String chunk = "chunk " + step.chunk();
    if (elements) {
      chunk += " (elements %,d to %,d)".formatted(step.begin(), step.end() - 1);
    }
    switch (step.action()) {
      case SEND -> text.append(" sends its own ").append(chunk);
      case RECV_REDUCE_SEND, RECV_REDUCE_COPY_SEND ->
          text.append(" reduces ").append(chunk).append(" from ").append(ranks(step.from()));
      case RECV_COPY_SEND, RECV ->
          text.append(" receives the result of ")
              .append(chunk)
              .append(" from ")
              .append(ranks(step.from()));
    }
    if (step.action().reduces()) {
      text.append(" with its own: ").append(value);
      text.append(step.action().keeps() ? ", the result" : "");
    }
    if (step.action().sends() && !step.to().isEmpty()) {
      text.append(step.action().receives() ? ", and sends it" : "");
      text.append(" to ").append(ranks(step.to()));
    }
    return text.toString();
  }

  private static String ranks(List<Integer> ranks) {
    StringBuilder text = new StringBuilder(ranks.size() == 1 ? "rank " : "ranks ");
    for (int i = 0; i < ranks.size(); i++) {
      text.append(i == 0 ? "" : i == ranks.size() - 1 ? " and " : ", ").append(ranks.get(i));
    }
    return text.toString();
  }
}
