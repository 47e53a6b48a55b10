/**
 * Plain Java that every package of the library may use: deadlines and the pauses of a wait, what an
 * interrupt does to one, steps of which each is done although others fail, and what to do while
 * memory is short. Depends on nothing else. Not exported.
 */
package io.nccl4j.internal.util;
