package io.nccl4j.tools.explain;

import io.nccl4j.schedule.Step;
import java.util.List;

/**
 * One step of one rank, and what came of it.
 *
 * @param step the step
 * @param value what the rank has of the slice afterwards: the ranks whose data is folded in
 * @param changes whether that is something else than before the step
 */
record Move(Step step, String value, boolean changes) {
  /** Says in a sentence what happens. */
  String sentence(boolean elements) {
    StringBuilder text = new StringBuilder("rank ").append(step.rank());
    String what = "chunk " + step.chunk();
    if (elements) {
      what += " (elements %,d to %,d)".formatted(step.begin(), step.end() - 1);
    }
    switch (step.action()) {
      case SEND -> text.append(" sends its own ").append(what);
      case RECV_REDUCE_SEND, RECV_REDUCE_COPY, RECV_REDUCE_COPY_SEND ->
          text.append(" folds ").append(what).append(" of ").append(ranks(step.from()));
      case RECV_COPY_SEND, RECV ->
          text.append(" keeps the result of ")
              .append(what)
              .append(" of ")
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
