package io.nccl4j.tools.cli;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** The bounds of an integer option; {@link OptionValue#checkBounds} checks them. */
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.FIELD)
public @interface Within {
  /** {@return the minimum} */
  int least();

  /** {@return the maximum} */
  int most() default Integer.MAX_VALUE;
}
