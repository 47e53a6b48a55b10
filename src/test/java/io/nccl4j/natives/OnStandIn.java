package io.nccl4j.natives;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Needs the stand-in of {@code src/test/native} as libnccl and libcudart. It is a test fixture; no
 * result of it is ever called NCCL's.
 */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Tag("standin")
@ExtendWith({OnStandIn.Condition.class, Downcalls.class})
public @interface OnStandIn {
  /** Skips where the stand-in could not be built. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      String missing = Requirement.missingLibrary("nccl");
      return Requirement.of(
          missing == null ? Requirement.missingLibrary("cudart") : missing, "REQUIRE_NCCL");
    }
  }
}
