package io.nccl4j;

/**
 * How a reduction combines two elements: one of the five constants, or an operator that a
 * communicator created.
 *
 * <p>Integer sums and products wrap around. Float minimum and maximum ignore NaN, as {@code fminf}
 * and {@code fmaxf} do. The average of integers is their wrapped sum, divided by the number of
 * ranks and truncated.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclredop-t">ncclRedOp_t</a>
 */
public abstract sealed class ReduceOp {
  /** The sum. */
  public static final ReduceOp SUM = new Standard(0, "sum");

  /** The product. */
  public static final ReduceOp PROD = new Standard(1, "prod");

  /** The largest value. */
  public static final ReduceOp MAX = new Standard(2, "max");

  /** The smallest value. */
  public static final ReduceOp MIN = new Standard(3, "min");

  /** The sum, divided by the number of ranks. */
  public static final ReduceOp AVG = new Standard(4, "avg");

  private final String label;

  private ReduceOp(String label) {
    this.label = label;
  }

  /** {@return the code of {@code ncclRedOp_t} that this operator has in its communicator} */
  public abstract int code();

  @Override
  public String toString() {
    return label;
  }

  /** Returns the memory that a scalar is read from when a reduction runs, or null. */
  Buffer scalar() {
    return null;
  }

  /** Throws unless the operator may reduce this type in this communicator. */
  abstract void check(CommunicatorCore communicator, DataType type);

  private static final class Standard extends ReduceOp {
    private final int code;

    Standard(int code, String label) {
      super(label);
      this.code = code;
    }

    @Override
    public int code() {
      return code;
    }

    @Override
    void check(CommunicatorCore communicator, DataType type) {
      // Every communicator has the five standard operators, for every type.
    }
  }

  /**
   * An operator that one communicator created for one type: each rank's data times that rank's own
   * scalar, then summed.
   *
   * <p>It belongs to whoever made it, with {@link Communicator#newPreMulSum(DataType, double)}, and
   * must be closed before its communicator. Operations that are enqueued already keep what they
   * need. Closing is idempotent; any thread may close it that may use the communicator.
   */
  public static final class PreMulSum extends ReduceOp implements AutoCloseable {
    private final CommunicatorCore communicator;
    private final DataType type;
    private final int code;
    // Where the scalar is read when a reduction runs, or null.
    private final Buffer scalar;
    private volatile boolean closed;

    PreMulSum(CommunicatorCore communicator, DataType type, int code, Buffer scalar) {
      super("mulsum");
      this.communicator = communicator;
      this.type = type;
      this.code = code;
      this.scalar = scalar;
    }

    @Override
    Buffer scalar() {
      return scalar;
    }

    @Override
    public int code() {
      return code;
    }

    /** {@return the type of the scalar, and of the data that the operator reduces} */
    public DataType type() {
      return type;
    }

    @Override
    void check(CommunicatorCore user, DataType dataType) {
      if (closed) {
        throw new IllegalStateException("op is closed: " + this);
      }
      if (user != communicator) {
        throw new IllegalArgumentException(
            "op was created by " + communicator + "; only that communicator can use it");
      }
      if (dataType != type) {
        throw new IllegalArgumentException(
            "op was created for " + type + "; it cannot reduce " + dataType);
      }
      if (scalar != null) {
        scalar.checkOpen("op's scalar");
      }
    }

    /** Gives the operator back. C: {@code ncclRedOpDestroy}. */
    @Override
    public void close() {
      synchronized (this) {
        if (closed) {
          return;
        }
        closed = true;
      }
      communicator.driver().destroyOperator(code);
    }
  }
}
