/**
 * Plain Java that every package of the library may use: checks of arguments, deadlines, the pauses
 * of a wait and its interrupts, steps that are all done although some fail, what to do while memory
 * is short, and warnings that do not flood a log. Depends on nothing else of the library. Not
 * exported.
 */
package io.nccl4j.internal.util;
