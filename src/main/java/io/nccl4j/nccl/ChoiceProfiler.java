package io.nccl4j.nccl;

import io.nccl4j.plugin.NcclPlugins;
import io.nccl4j.plugin.Profiler;
import io.nccl4j.plugin.ProfilerEvent;

/**
 * Lets NCCL report what it chooses, if {@value #PROPERTY} or {@value #VARIABLE} asks for it.
 * Nothing is done here with the events: any profiler makes NCCL's choices appear in those of JFR.
 */
record ChoiceProfiler(boolean kernelTimes) implements Profiler {
  private static final String PROPERTY = "io.nccl4j.nccl.choices";
  private static final String VARIABLE = "NCCL4J_NCCL_CHOICES";

  private static boolean installed;

  @Override
  public void accept(ProfilerEvent event) {
    // See above.
  }

  /**
   * Installs the profiler once. Called before NCCL is loaded.
   *
   * @throws IllegalArgumentException if the value is none of those that are defined
   * @throws IllegalStateException if NCCL is loaded already, or the user has another plugin
   */
  static synchronized void installIfWanted() {
    String property = System.getProperty(PROPERTY);
    String text = property != null ? property : System.getenv(VARIABLE);
    if (installed || text == null || text.equals("false")) {
      return;
    }
    if (!text.equals("true") && !text.equals("kernels")) {
      throw new IllegalArgumentException(
          (property != null ? PROPERTY : VARIABLE)
              + " is '"
              + text
              + "'; it must be true, kernels or false");
    }
    NcclPlugins.addProfiler(new ChoiceProfiler(text.equals("kernels")));
    installed = true;
  }
}
