package io.nccl4j.tools.flight;

import io.nccl4j.tools.flight.Finding.Kind;
import io.nccl4j.tools.flight.RankLog.Call;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * Compares the ranks of one communicator. Ranks that differ at a collective are compared no
 * further: which of their later calls belong together is not known.
 *
 * @param logs the logs by rank
 * @param findings the differences, in the order in which they occurred
 */
record Comparison(SortedMap<Integer, RankLog> logs, List<Finding> findings) {
  // How far apart the calls of ranks with another order may be.
  private static final int ORDER_WINDOW = 16;

  /** Compares the logs of a communicator, of at least one rank. */
  static Comparison of(Collection<RankLog> ofCommunicator) {
    SortedMap<Integer, RankLog> logs = new TreeMap<>();
    ofCommunicator.forEach(log -> logs.put(log.rank(), log));
    Comparison comparison = new Comparison(logs, new ArrayList<>());
    comparison.findMissing();
    comparison.compareCollectives();
    comparison.compareMessages();
    return comparison;
  }

  /** Returns when any rank made its last call, in nanoseconds since 1970. */
  long lastCall() {
    return logs.values().stream()
        .flatMap(log -> Stream.concat(log.collectives().values().stream(), log.messages().stream()))
        .mapToLong(Call::nanos)
        .max()
        .orElse(0);
  }

  /** Returns the log of any rank, to tell what all have in common. */
  RankLog any() {
    return logs.get(logs.firstKey());
  }

  private void add(Kind kind, Set<Integer> ranks, long number, String text) {
    findings.add(new Finding(kind, ranks, number, text));
  }

  private void findMissing() {
    Set<Integer> missing =
        IntStream.range(0, any().size())
            .filter(rank -> !logs.containsKey(rank))
            .boxed()
            .collect(Collectors.toCollection(TreeSet::new));
    if (!missing.isEmpty()) {
      add(
          Kind.NO_LOG,
          missing,
          0,
          "there is no log of "
              + ranks(missing)
              + "; if "
              + (missing.size() == 1 ? "it runs" : "they run")
              + " on another host, run this command there with --dumps and the same folder");
    }
  }

  /** Returns the first collective that every log still has, if the rank has called it. */
  private long firstCommon() {
    return logs.values().stream()
        .filter(log -> !log.collectives().isEmpty())
        .mapToLong(log -> log.collectives().firstKey())
        .max()
        .orElse(1);
  }

  private void compareCollectives() {
    long last = logs.values().stream().mapToLong(RankLog::called).max().orElse(0);
    for (long number = firstCommon(); number <= last; number++) {
      Map<Integer, Call> calls = new TreeMap<>();
      Set<Integer> behind = new TreeSet<>();
      for (RankLog log : logs.values()) {
        Call call = log.collectives().get(number);
        if (call != null) {
          calls.put(log.rank(), call);
        } else if (log.called() < number) {
          behind.add(log.rank());
        }
      }
      boolean same = compare(number, calls);
      if (!behind.isEmpty()) {
        addBehind(number, calls, behind);
      }
      if (!same || !behind.isEmpty()) {
        return;
      }
    }
    findNotCompleted();
  }

  private void addBehind(long number, Map<Integer, Call> calls, Set<Integer> behind) {
    String who =
        behind.stream()
            .map(
                rank ->
                    "%s has called %d collectives"
                        .formatted(logs.get(rank).who(), logs.get(rank).called()))
            .collect(Collectors.joining(", "));
    Set<Integer> waiting = new TreeSet<>(calls.keySet());
    waiting.removeIf(rank -> calls.get(rank).completed());
    String others =
        waiting.isEmpty()
            ? ranks(calls.keySet()) + " called"
            : ranks(waiting) + (waiting.size() == 1 ? " waits in" : " wait in");
    add(
        Kind.BEHIND,
        behind,
        number,
        "%s; %s collective %d, %s"
            .formatted(who, others, number, calls.values().iterator().next()));
  }

  /** Compares the calls of a collective; returns whether they match. */
  private boolean compare(long number, Map<Integer, Call> calls) {
    List<Map.Entry<Call, Set<Integer>>> groups = new ArrayList<>();
    calls.forEach(
        (rank, call) ->
            groups.stream()
                .filter(group -> group.getKey().matches(call))
                .findFirst()
                .orElseGet(
                    () -> {
                      groups.add(Map.entry(call, new TreeSet<>()));
                      return groups.getLast();
                    })
                .getValue()
                .add(rank));
    if (groups.size() < 2) {
      return true;
    }
    groups.sort(
        Comparator.comparingInt((Map.Entry<Call, Set<Integer>> each) -> each.getValue().size())
            .reversed());
    Map.Entry<Call, Set<Integer>> most = groups.getFirst();
    boolean majority = most.getValue().size() > groups.get(1).getValue().size();
    Set<Integer> others = new TreeSet<>(majority ? Set.of() : most.getValue());
    groups.stream().skip(1).forEach(group -> others.addAll(group.getValue()));
    String text =
        groups.stream()
            .map(group -> ranks(group.getValue()) + " called " + group.getKey())
            .collect(Collectors.joining(", "));
    Kind kind = kind(number, most, groups.get(1));
    String order = kind == Kind.OTHER_ORDER ? "; the same calls follow in another order" : "";
    add(kind, others, number, "collective " + number + ": " + text + order);
    return false;
  }

  private Kind kind(
      long number, Map.Entry<Call, Set<Integer>> one, Map.Entry<Call, Set<Integer>> other) {
    Call first = one.getKey();
    Call second = other.getKey();
    if (calledLater(number, one, second) && calledLater(number, other, first)) {
      return Kind.OTHER_ORDER;
    }
    if (!first.operation().equals(second.operation())) {
      return Kind.OTHER_OPERATION;
    }
    if (first.count() != second.count()) {
      return Kind.OTHER_COUNT;
    }
    return first.type().equals(second.type()) ? Kind.OTHER_ARGUMENT : Kind.OTHER_TYPE;
  }

  /** Returns whether ranks have made a call soon after a number. */
  private boolean calledLater(long number, Map.Entry<Call, Set<Integer>> group, Call call) {
    return logs
        .get(group.getValue().iterator().next())
        .collectives()
        .subMap(number, false, number + ORDER_WINDOW, true)
        .values()
        .stream()
        .anyMatch(call::matches);
  }

  private void findNotCompleted() {
    long number = logs.values().stream().mapToLong(RankLog::completed).min().orElse(0) + 1;
    Set<Integer> pending = new TreeSet<>();
    for (RankLog log : logs.values()) {
      Call call = log.collectives().get(number);
      if (call != null && !call.completed()) {
        pending.add(log.rank());
      }
    }
    if (!pending.isEmpty()) {
      Call call = logs.get(pending.iterator().next()).collectives().get(number);
      add(
          Kind.NOT_COMPLETED,
          pending,
          number,
          "every rank with a log has called collective %d, %s; %s had not completed it"
              .formatted(number, call, ranks(pending)));
    }
  }

  private void compareMessages() {
    for (RankLog sender : logs.values()) {
      for (RankLog receiver : logs.values()) {
        compareMessages(
            sender,
            receiver,
            sender.messages("send", receiver.rank()),
            receiver.messages("recv", sender.rank()));
      }
    }
  }

  private void compareMessages(
      RankLog sender, RankLog receiver, TreeMap<Long, Call> sends, TreeMap<Long, Call> receives) {
    Map<Long, Call> all = new LinkedHashMap<>(sends);
    receives.forEach(all::putIfAbsent);
    for (long number : new TreeSet<>(all.keySet())) {
      Call send = sends.get(number);
      Call receive = receives.get(number);
      boolean older =
          (send == null && !sends.isEmpty() && number < sends.firstKey())
              || (receive == null && !receives.isEmpty() && number < receives.firstKey());
      Call one = Objects.requireNonNullElse(send, receive);
      if (send != null && receive != null) {
        if (send.count() != receive.count() || !send.type().equals(receive.type())) {
          add(
              Kind.MESSAGE,
              new TreeSet<>(Set.of(sender.rank(), receiver.rank())),
              number,
              "message %d: rank %d called %s, rank %d called %s"
                  .formatted(number, sender.rank(), send, receiver.rank(), receive));
          return;
        }
      } else if (!older && !one.completed()) {
        RankLog caller = send == null ? receiver : sender;
        RankLog late = send == null ? sender : receiver;
        add(
            Kind.MESSAGE,
            new TreeSet<>(Set.of(late.rank())),
            number,
            "message %d: rank %d called %s, %s has not called its %s"
                .formatted(
                    number, caller.rank(), one, late.who(), send == null ? "send" : "receive"));
        return;
      }
    }
  }

  /** Returns ranks as text: {@code rank 3}, {@code ranks 0, 2 and 5 to 9}. */
  static String ranks(Collection<Integer> ranks) {
    List<Integer> sorted = ranks.stream().sorted().toList();
    List<String> parts = new ArrayList<>();
    for (int i = 0; i < sorted.size(); ) {
      int end = i;
      while (end + 1 < sorted.size() && sorted.get(end + 1) == sorted.get(end) + 1) {
        end++;
      }
      if (end - i >= 2) {
        parts.add(sorted.get(i) + " to " + sorted.get(end));
        i = end + 1;
      } else {
        parts.add(sorted.get(i).toString());
        i++;
      }
    }
    String last = parts.removeLast();
    return (sorted.size() == 1 ? "rank " : "ranks ")
        + (parts.isEmpty() ? last : String.join(", ", parts) + " and " + last);
  }
}
