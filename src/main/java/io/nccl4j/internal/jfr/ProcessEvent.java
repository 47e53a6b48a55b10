package io.nccl4j.internal.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.Period;
import jdk.jfr.StackTrace;

/** Identifies the recording process, so that recordings of several processes can be merged. */
@Name("io.nccl4j.Process")
@Label("Process")
@Category("nccl4j")
@Description("The process that recorded, and the clock of its times")
@Period("everyChunk")
@StackTrace(false)
public final class ProcessEvent extends Event {
  @Label("Process Id")
  public long pid;

  @Label("Host")
  @Description("The host's name, as the process sees it")
  public String host;

  @Label("Clock")
  @Description("The kernel's boot id: processes that have the same one share a clock")
  public String clock;

  @Label("Library")
  @Description("The version of nccl4j")
  public String library;
}
