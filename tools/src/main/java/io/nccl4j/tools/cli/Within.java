package io.nccl4j.tools.cli;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** The bounds of an option that is a whole number; {@link OptionValue#spec} applies them. */
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.FIELD)
public @interface Within {
  /** {@return the least that is allowed} */
  int least();

  /** {@return the most that is allowed} */
  int most();
}
