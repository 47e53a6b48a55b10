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

/** Needs an NVIDIA GPU with its driver. The probe looks for the driver's devices, not at nccl4j. */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@Tag("gpu")
@ExtendWith({OnGpu.Condition.class, Downcalls.class})
public @interface OnGpu {
  /** Skips where there is no GPU. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      return Requirement.of(
          Driver.present() ? null : "no NVIDIA GPU: neither /dev/nvidiactl nor /dev/dxg is there",
          "REQUIRE_GPU");
    }
  }
}
