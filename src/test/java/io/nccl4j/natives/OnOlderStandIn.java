package io.nccl4j.natives;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Runs once with each older NCCL that the stand-in can be built as, each in a process of its own;
 * the system property {@code test.nccl.release} says which.
 */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Tag("standin-older")
@ExtendWith(OnStandIn.Condition.class)
public @interface OnOlderStandIn {}
