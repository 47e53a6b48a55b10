package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * Thrown when the library rejects an argument or a sequence of calls: {@link
 * NcclResult#INVALID_ARGUMENT} or {@link NcclResult#INVALID_USAGE}.
 */
@NullMarked
public class NcclInvalidUsageException extends NcclException {
  private static final long serialVersionUID = 1;

  NcclInvalidUsageException(String function, int code, String text, String lastError) {
    super(function, code, text, lastError);
  }
}
