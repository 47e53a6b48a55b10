package io.nccl4j;

/**
 * For the backends: the way into one communicator for calls that have been checked and launched
 * before. Each step is apart from the others, so that the hot path keeps one reference alive over
 * the native call.
 */
public abstract class Entrance {
  /** For the backends. */
  protected Entrance() {}

  /**
   * Lets this thread in, if nobody is inside; it then leaves in any case.
   *
   * @return false if another thread is inside
   */
  protected abstract boolean occupy();

  /**
   * Enqueues an all-reduce, by the thread inside.
   *
   * @param send the data to send
   * @param recv where to receive
   * @param op one of the standard operators
   * @param stream the stream that orders it
   * @return 0, or what {@link #settle} takes
   */
  protected abstract int allReduce(Buffer send, Buffer recv, ReduceOp op, Stream stream);

  /**
   * Ends an all-reduce that was not merely enqueued, by the thread inside.
   *
   * @param result what {@link #allReduce} returned, not 0
   */
  protected abstract void settle(int result);

  /** Lets this thread out. If the communicator has ended meanwhile, it is given back. */
  protected abstract void leave();
}
