package io.nccl4j.internal;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/** A native library is looked for and loaded. */
@Name("io.nccl4j.Library")
@Label("Library")
@Category("nccl4j")
@Description("A native library is looked for and loaded")
@StackTrace(false)
final class LibraryEvent extends Event {
  @Label("Library")
  String library;

  @Label("Version")
  @Description("The code that the library's version function answers")
  int version;

  @Label("Path")
  String path;

  @Label("Error")
  @Description("Why none was loaded, or nothing")
  String error;
}
