package io.nccl4j.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.Event;
import io.nccl4j.Stream;
import java.util.Arrays;

/**
 * The memory of one bucket, and the streams that compute its gradients in this step. Only the
 * communication stream accesses the slots of copied gradients.
 */
final class BucketBuffer {
  private final Bucket bucket;
  private final Communicator communicator;
  private final OwnedResources resources;
  private final Buffer memory;
  private final BucketEntry[] entries;
  private int pending;
  // The streams passed to markReady in this step; usually one, so a linear search is cheap.
  private Stream[] sources = new Stream[1];
  private Event[] events = new Event[1];
  private int sourceCount;

  /** Allocates the memory, owned by {@code resources}. */
  BucketBuffer(Bucket bucket, Communicator communicator, OwnedResources resources) {
    this.bucket = bucket;
    this.communicator = communicator;
    this.resources = resources;
    this.memory =
        resources.add(communicator.newBuffer(bucket.type(), bucket.count()), Buffer::close);
    this.events[0] = newEvent();
    this.entries =
        bucket.slots().stream()
            .map(slot -> new BucketEntry(slot.parameter(), this, slice(slot)))
            .toArray(BucketEntry[]::new);
    this.pending = entries.length;
  }

  private Buffer slice(Bucket.Slot slot) {
    return memory.slice(slot.offset(), slot.parameter().value().count());
  }

  private Event newEvent() {
    return resources.add(communicator.newEvent(), Event::close);
  }

  Bucket bucket() {
    return bucket;
  }

  Buffer memory() {
    return memory;
  }

  BucketEntry[] entries() {
    return entries;
  }

  /** Records that one more gradient is ready once the stream has completed its current work. */
  void take(Stream source) {
    addSource(source);
    pending--;
    if (pending == 0) {
      // Later than the individual marks if there are several streams, but one event per stream.
      for (int i = 0; i < sourceCount; i++) {
        sources[i].record(events[i]);
      }
    }
  }

  private void addSource(Stream source) {
    for (int i = 0; i < sourceCount; i++) {
      if (sources[i] == source) {
        return;
      }
    }
    if (sourceCount == sources.length) {
      sources = Arrays.copyOf(sources, sourceCount + 1);
      events = Arrays.copyOf(events, sourceCount + 1);
      events[sourceCount] = newEvent();
    }
    sources[sourceCount] = source;
    sourceCount++;
  }

  /** Returns whether all gradients are ready. */
  boolean complete() {
    return pending == 0;
  }

  /** Makes a stream wait for the gradients and copies them into their slots where needed. */
  void gather(Stream stream) {
    for (int i = 0; i < sourceCount; i++) {
      stream.waitFor(events[i]);
    }
    for (BucketEntry entry : entries) {
      if (entry.unused()) {
        entry.slot().fill((byte) 0, stream);
      } else if (entry.copied()) {
        entry.slot().copyFromAsync(entry.gradient(), stream);
      }
    }
  }

  /** Copies the slots back to the gradients that are copied. */
  void scatter(Stream stream) {
    for (BucketEntry entry : entries) {
      if (entry.copied()) {
        entry.gradient().copyFromAsync(entry.slot(), stream);
      }
    }
  }

  /** Copies the parameters' values into the slots. */
  void gatherValues(Stream stream) {
    for (BucketEntry entry : entries) {
      entry.slot().copyFromAsync(entry.parameter().value(), stream);
    }
  }

  /** Copies the slots to the parameters' values. */
  void scatterValues(Stream stream) {
    for (BucketEntry entry : entries) {
      entry.parameter().value().copyFromAsync(entry.slot(), stream);
    }
  }

  /** Zeroes the whole bucket, including the gaps. */
  void clear(Stream stream) {
    memory.fill((byte) 0, stream);
  }

  /** Clears the marks. */
  void beginStep() {
    for (BucketEntry entry : entries) {
      entry.beginStep();
    }
    pending = entries.length;
    Arrays.fill(sources, null);
    sourceCount = 0;
  }
}
