package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclException;
import java.net.ProtocolException;
import java.util.BitSet;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Where the ranks of a communicator meet to make new ones, as far as that is not done: for a split,
 * a shrink or a grow.
 */
public final class Meetings {
  private final Site site;
  private final Meeting.Parent parent;
  private final String options;
  private final ConcurrentHashMap<Occasion, Meeting> meetings = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<Occasion, Growth> growths = new ConcurrentHashMap<>();

  /**
   * Makes those of a communicator.
   *
   * @param options what new ranks must do their work with too, as text
   */
  public Meetings(Site site, Meeting.Parent parent, String options) {
    this.site = site;
    this.parent = parent;
    this.options = options;
  }

  Site site() {
    return site;
  }

  int parentSize() {
    return parent.size();
  }

  String options() {
    return options;
  }

  /** Returns where the ranks meet for a split or a shrink. */
  public Meeting meeting(Occasion occasion) {
    return meetings.computeIfAbsent(
        occasion,
        o -> {
          BitSet expected = new BitSet();
          expected.set(0, parent.size());
          expected.andNot(o.excluded());
          return open(o, expected, done -> over(o, done));
        });
  }

  /** Returns how many splits and shrinks are known that are not done; for tests. */
  public int unfinished() {
    return meetings.size();
  }

  /**
   * Makes the meeting of an occasion: here if this process convenes it, else at the one that does.
   */
  Meeting open(Occasion occasion, BitSet expected, Meeting.End end) {
    Plan plan = parent.plan();
    Meeting meeting = new Meeting(occasion.function(), plan.secret(), expected, parent, end);
    Meeting.Chair chair = parent.chair(plan.processOf(expected.nextSetBit(0)), occasion);
    if (chair != null) {
      meeting.attend(chair);
      return meeting;
    }
    BitSet told = new BitSet();
    expected.stream().filter(rank -> rank < plan.size()).map(plan::processOf).forEach(told::set);
    told.stream()
        .mapToObj(process -> parent.audience(process, occasion))
        .filter(Objects::nonNull)
        .forEach(meeting::addAudience);
    return meeting;
  }

  private void over(Occasion occasion, boolean done) {
    // A rank that calls later than the others needs to find that the meeting has failed.
    if (done) {
      forget(occasion);
    }
  }

  /** Returns where the ranks meet for a grow. */
  public Growth growth(Occasion occasion) {
    return growths.computeIfAbsent(occasion, o -> new Growth(this, o));
  }

  /**
   * Returns the meeting of an occasion that ranks of another process speak of.
   *
   * @throws NcclException if a grow cannot have this size, or the ranks here want another one
   */
  public Meeting meetingFor(Occasion occasion, int newSize) throws ProtocolException {
    if (occasion.function().equals(Occasion.GROW)) {
      return growth(occasion).meeting(newSize);
    }
    if (occasion.excluded().cardinality() >= parent.size()) {
      throw new ProtocolException("a " + occasion.function() + " leaves no rank");
    }
    return meeting(occasion);
  }

  /** Returns the meeting of an occasion, or null if there is none for this size. */
  public Meeting known(Occasion occasion, int newSize) {
    if (occasion.function().equals(Occasion.GROW)) {
      Growth growth = growths.get(occasion);
      return growth == null ? null : growth.knownMeeting(newSize);
    }
    return meetings.get(occasion);
  }

  void forget(Occasion occasion) {
    meetings.remove(occasion);
    growths.remove(occasion);
  }

  /** Ends those meetings that need a rank that has left. */
  public void checkPresent() {
    meetings.values().forEach(Meeting::checkPresent);
    growths.values().forEach(Growth::checkPresent);
  }
}
