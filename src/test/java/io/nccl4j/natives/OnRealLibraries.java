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
 * Needs NVIDIA's own libnccl and libcudart, of the wheels pinned in {@code headers/wheels.txt}; a
 * driver and a GPU are not needed.
 */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Tag("real-libraries")
@ExtendWith({OnRealLibraries.Condition.class, Downcalls.class})
public @interface OnRealLibraries {
  /** Skips where the libraries could not be fetched. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      String missing = Requirement.missingLibrary("nccl");
      return Requirement.of(
          missing == null ? Requirement.missingLibrary("cudart") : missing, "REQUIRE_NCCL");
    }
  }
}
