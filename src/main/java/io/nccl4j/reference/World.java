package io.nccl4j.reference;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/** The ranks of one communicator in this process, and what they share. */
final class World {
  /** What a link is for; links of different kinds never meet. */
  enum Route {
    RING,
    UP,
    DOWN,
    EXCHANGE,
    MESSAGES
  }

  private record LinkKey(Route route, int channel, int from, int to) {}

  private static final AtomicLong WORLDS = new AtomicLong();

  private final long id = WORLDS.incrementAndGet();
  private final ReferenceOptions options;
  private final List<Member> members = new ArrayList<>();
  private final ConcurrentHashMap<LinkKey, MemoryLink> links = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<Occasion, Meeting> meetings = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<Occasion, Growth> growths = new ConcurrentHashMap<>();
  private final AtomicReference<Fault> fault = new AtomicReference<>();
  private final Board board;
  // Whether anything has happened that a waiting rank should know: one cheap look for it.
  private volatile boolean alarm;

  World(int size, ReferenceOptions options) {
    this.options = options;
    this.board = new Board(size);
    for (int rank = 0; rank < size; rank++) {
      members.add(new Member(this, rank, size));
    }
  }

  /** Returns a number that all ranks know this world by, and that no other world has. */
  long id() {
    return id;
  }

  int size() {
    return members.size();
  }

  Member member(int rank) {
    return members.get(rank);
  }

  ReferenceOptions options() {
    return options;
  }

  /** Returns whether every rank reaches every other rank's memory. */
  boolean inOneProcess() {
    return true;
  }

  /** Returns where the ranks meet for direct transfers. */
  Board board() {
    return board;
  }

  MemoryLink link(Route route, int channel, int from, int to) {
    return links.computeIfAbsent(
        new LinkKey(route, channel, from, to),
        key -> new MemoryLink(member(key.from), member(key.to)));
  }

  /** Returns where the ranks meet for a split or a shrink. */
  Meeting meeting(Occasion occasion) {
    return meetings.computeIfAbsent(
        occasion,
        o -> {
          BitSet expected = new BitSet();
          expected.set(0, size());
          expected.andNot(o.excluded());
          return new Meeting(o.function(), this, expected, () -> forget(o));
        });
  }

  /** Returns where the ranks meet for a grow. */
  Growth growth(Occasion occasion) {
    return growths.computeIfAbsent(occasion, o -> new Growth(this, o));
  }

  void forget(Occasion occasion) {
    meetings.remove(occasion);
    growths.remove(occasion);
  }

  Fault fault() {
    return fault.get();
  }

  /** Tells all ranks what went wrong, unless something did before. */
  void raise(Fault first) {
    fault.compareAndSet(null, first);
    raiseAlarm();
  }

  void raiseAlarm() {
    alarm = true;
    members.forEach(Member::wake);
  }

  boolean alarm() {
    return alarm;
  }
}
