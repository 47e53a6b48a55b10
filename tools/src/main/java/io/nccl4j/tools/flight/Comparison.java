package io.nccl4j.tools.flight;

import io.nccl4j.tools.flight.Finding.Kind;
import io.nccl4j.tools.flight.RankLog.Call;
import io.nccl4j.tools.flight.RankLog.Worker;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * Compares the ranks of one communicator. Ranks that differ at a collective are compared no
 * further: which of their later calls belong together is not known.
 *
 * @param logs the logs by rank
 * @param workers all logs, also of other communicators, by where their ranks run
 * @param findings the differences, in the order in which they occurred
 */
record Comparison(
    SortedMap<Integer, RankLog> logs, Map<Worker, List<RankLog>> workers, List<Finding> findings) {
  // How far apart the calls of ranks with another order may be.
  private static final int ORDER_WINDOW = 16;
  // How many ranks a finding lists with their processes.
  private static final int MAX_LISTED = 4;
  private static final double NANOS_PER_SECOND = 1e9;
  private static final SortedMap<Long, Call> NONE = Collections.emptySortedMap();

  /** Compares the ranks of each communicator; returns the last used communicator first. */
  static List<Comparison> all(Collection<Map<Integer, RankLog>> communicators) {
    Map<Worker, List<RankLog>> workers =
        communicators.stream()
            .flatMap(ranks -> ranks.values().stream())
            .collect(Collectors.groupingBy(RankLog::worker));
    return communicators.stream()
        .map(ranks -> of(ranks, workers))
        .sorted(Comparator.comparingLong(Comparison::lastCall).reversed())
        .toList();
  }

  private static Comparison of(Map<Integer, RankLog> ranks, Map<Worker, List<RankLog>> workers) {
    Comparison comparison = new Comparison(new TreeMap<>(ranks), workers, new ArrayList<>());
    comparison.findMissing();
    comparison.compareCollectives();
    comparison.compareMessages();
    return comparison;
  }

  /** Returns when any rank made its last call, in nanoseconds since 1970; 0 if none did. */
  long lastCall() {
    return logs.values().stream().flatMap(RankLog::calls).mapToLong(Call::nanos).max().orElse(0);
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
    SortedSet<Long> numbers = new TreeSet<>();
    logs.values().forEach(log -> numbers.addAll(log.collectives().keySet()));
    for (long number : numbers.tailSet(firstCommon())) {
      SortedMap<Integer, Call> calls = new TreeMap<>();
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

  private void addBehind(long number, SortedMap<Integer, Call> calls, Set<Integer> behind) {
    Call call = calls.get(calls.firstKey());
    long firstCalled = calls.values().stream().mapToLong(Call::nanos).min().orElseThrow();
    Set<Integer> older = new TreeSet<>(behind);
    older.removeIf(rank -> logs.get(rank).asOf() >= firstCalled);
    addOlder(older, number, "collective " + number + ", " + call, firstCalled);
    Set<Integer> late = new TreeSet<>(behind);
    late.removeAll(older);
    if (late.isEmpty()) {
      return;
    }
    Map<Long, Set<Integer>> byCalled = new TreeMap<>();
    late.forEach(
        rank -> byCalled.computeIfAbsent(logs.get(rank).called(), c -> new TreeSet<>()).add(rank));
    String who =
        byCalled.entrySet().stream()
            .map(each -> called(each.getValue(), each.getKey()))
            .collect(Collectors.joining(", "));
    Set<Integer> waiting = new TreeSet<>(calls.keySet());
    waiting.removeIf(rank -> calls.get(rank).completed());
    String others =
        waiting.isEmpty()
            ? ranks(calls.keySet()) + " called"
            : ranks(waiting) + (waiting.size() == 1 ? " waits in" : " wait in");
    add(
        Kind.BEHIND,
        late,
        number,
        "%s; %s collective %d, %s%s"
            .formatted(who, others, number, call, longestWait(waiting, calls)));
  }

  private String called(Set<Integer> ranks, long called) {
    if (ranks.size() > MAX_LISTED) {
      return "%s have called %s".formatted(ranks(ranks), collectives(called));
    }
    return ranks.stream()
        .map(rank -> logs.get(rank))
        .map(log -> "%s has called %s%s".formatted(log.who(), collectives(called), waits(log)))
        .collect(Collectors.joining(", "));
  }

  private static String collectives(long count) {
    return count == 1 ? "1 collective" : count + " collectives";
  }

  /** Returns what a late rank waits for itself, in any of its communicators. */
  private String waits(RankLog late) {
    return workers.get(late.worker()).stream()
        .filter(log -> !log.ended() && log.waitsIn().isPresent())
        .min(Comparator.comparingLong(log -> log.waitsIn().orElseThrow().nanos()))
        .map(
            log ->
                " and waits in %s%s%s"
                    .formatted(
                        log.waitsIn().orElseThrow(),
                        log.communicator().equals(late.communicator())
                            ? ""
                            : " of communicator " + log.communicator(),
                        log.waited(log.waitsIn().orElseThrow())))
        .orElse("");
  }

  private String longestWait(Set<Integer> waiting, Map<Integer, Call> calls) {
    return waiting.stream()
        .min(Comparator.comparingLong(rank -> calls.get(rank).nanos()))
        .map(rank -> logs.get(rank).waited(calls.get(rank)))
        .orElse("");
  }

  private void addOlder(Set<Integer> older, long number, String call, long firstCalled) {
    if (!older.isEmpty()) {
      long last = older.stream().mapToLong(rank -> logs.get(rank).asOf()).max().orElseThrow();
      add(
          Kind.OLDER,
          older,
          number,
          "the %s of %s %s written %.1f s before others called %s; whether %s called it later is not known"
              .formatted(
                  older.size() == 1 ? "dump" : "dumps",
                  ranks(older),
                  older.size() == 1 ? "was" : "were",
                  (firstCalled - last) / NANOS_PER_SECOND,
                  call,
                  older.size() == 1 ? "it" : "they"));
    }
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
        .subMap(number + 1, number + 1 + ORDER_WINDOW)
        .values()
        .stream()
        .anyMatch(call::matches);
  }

  private void findNotCompleted() {
    long number =
        logs.values().stream()
                .mapToLong(RankLog::completed)
                .filter(completed -> completed >= 0)
                .min()
                .orElse(0)
            + 1;
    SortedMap<Integer, Call> pending = new TreeMap<>();
    for (RankLog log : logs.values()) {
      Call call = log.collectives().get(number);
      if (call != null && !call.completed()) {
        pending.put(log.rank(), call);
      }
    }
    if (!pending.isEmpty()) {
      add(
          Kind.NOT_COMPLETED,
          pending.keySet(),
          number,
          "every rank with a log has called collective %d, %s; %s had not completed it%s"
              .formatted(
                  number,
                  pending.get(pending.firstKey()),
                  ranks(pending.keySet()),
                  longestWait(pending.keySet(), pending)));
    }
  }

  private void compareMessages() {
    for (RankLog log : logs.values()) {
      Set<Integer> peers = new TreeSet<>(log.sends().keySet());
      // Those that sent nothing.
      logs.values().stream()
          .filter(receiver -> receiver.receives().containsKey(log.rank()))
          .forEach(receiver -> peers.add(receiver.rank()));
      for (int peer : peers) {
        if (logs.containsKey(peer)) {
          compareMessages(log, logs.get(peer));
        }
      }
    }
  }

  private void compareMessages(RankLog sender, RankLog receiver) {
    SortedMap<Long, Call> sends = sender.sends().getOrDefault(receiver.rank(), NONE);
    SortedMap<Long, Call> receives = receiver.receives().getOrDefault(sender.rank(), NONE);
    SortedSet<Long> numbers = new TreeSet<>(sends.keySet());
    numbers.addAll(receives.keySet());
    for (long number : numbers) {
      Call send = sends.get(number);
      Call receive = receives.get(number);
      if (send != null && receive != null) {
        if (send.count() != receive.count() || !send.type().equals(receive.type())) {
          add(
              Kind.MESSAGE,
              new TreeSet<>(List.of(sender.rank(), receiver.rank())),
              number,
              "message %d: rank %d called %s, rank %d called %s"
                  .formatted(number, sender.rank(), send, receiver.rank(), receive));
          return;
        }
      } else if (send == null
          ? addLate(number, sender, sends, receiver, receive)
          : addLate(number, receiver, receives, sender, send)) {
        return;
      }
    }
  }

  /** Adds a finding if a rank has not made the call that another one waits for. */
  private boolean addLate(
      long number, RankLog late, SortedMap<Long, Call> calls, RankLog caller, Call call) {
    boolean overwritten = calls.isEmpty() ? late.overwritten() > 0 : number < calls.firstKey();
    if (overwritten || call.completed()) {
      return false;
    }
    if (late.asOf() < call.nanos()) {
      addOlder(
          new TreeSet<>(Set.of(late.rank())),
          number,
          "message %d, %s".formatted(number, call),
          call.nanos());
      return true;
    }
    add(
        Kind.MESSAGE,
        new TreeSet<>(Set.of(late.rank())),
        number,
        "message %d: rank %d waits in %s%s, %s has not called its %s%s"
            .formatted(
                number,
                caller.rank(),
                call,
                caller.waited(call),
                late.who(),
                call.operation().equals("send") ? "receive" : "send",
                waits(late)));
    return true;
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
