package io.nccl4j.internal.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/** Recorded when a native library is searched for and loaded. */
@Name("io.nccl4j.Library")
@Label("Library")
@Category("nccl4j")
@Description("Search for and loading of a native library")
@StackTrace(false)
public final class LibraryEvent extends Event {
  @Label("Library")
  public String library;

  @Label("Version")
  @Description("The code returned by the library's version function")
  public int version;

  @Label("Path")
  public String path;

  @Label("Error")
  @Description("The reason if no library was loaded")
  public String error;
}
