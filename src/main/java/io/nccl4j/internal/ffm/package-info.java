/**
 * Finds and loads the native libraries, and makes native calls: with deadlines, and on platform
 * threads only. Depends on the public exceptions and the generated bindings. Not exported.
 */
package io.nccl4j.internal.ffm;
