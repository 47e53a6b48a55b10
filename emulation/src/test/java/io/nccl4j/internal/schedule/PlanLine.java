package io.nccl4j.internal.schedule;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * One line of the file that {@code NCCL4J_STANDIN_PLAN} names: what NCCL's planner has decided for
 * one collective on one channel of one rank. It consists of keys and values ({@code
 * kernels/plan.c}).
 */
record PlanLine(Map<String, String> values) {
  private static final Pattern BLANK = Pattern.compile(" ");
  private static final Pattern COMMA = Pattern.compile(",");

  static PlanLine parse(String line) {
    List<String> words = BLANK.splitAsStream(line).toList();
    if (words.size() % 2 != 0) {
      throw new IllegalArgumentException("a key has no value: " + line);
    }
    Map<String, String> values = new HashMap<>();
    for (int i = 0; i < words.size(); i += 2) {
      values.put(words.get(i), words.get(i + 1));
    }
    return new PlanLine(values);
  }

  String text(String key) {
    String value = values.get(key);
    if (value == null) {
      throw new IllegalArgumentException("there is no " + key + ": " + values);
    }
    return value;
  }

  int number(String key) {
    return Integer.parseInt(text(key));
  }

  long longNumber(String key) {
    return Long.parseLong(text(key));
  }

  /** Returns a list of numbers that are separated by commas. */
  List<Integer> numbers(String key) {
    return COMMA.splitAsStream(text(key)).map(Integer::valueOf).toList();
  }

  int rank() {
    return number("rank");
  }

  int channel() {
    return number("channel");
  }

  /** Returns the number of channels of the collective. */
  int channels() {
    String[] firstAndLast = text("channels").split("-", -1);
    return Integer.parseInt(firstAndLast[1]) - Integer.parseInt(firstAndLast[0]) + 1;
  }

  /** Returns the ranks that receive from this one in the tree's broadcast. */
  List<Integer> treeDown() {
    List<Integer> children = new ArrayList<>(numbers("tree-down"));
    children.removeIf(child -> child == Tree.NONE);
    return children;
  }
}
