/**
 * The hang drill: every collective with a rank that is missing, late, calls something else, dies or
 * is stopped. What the drills of both backends share.
 */
package io.nccl4j.drill;
