/**
 * The hang drill, shared by the tests of both backends: every collective with a rank that is
 * missing or late, makes another call, dies or is stopped.
 */
package io.nccl4j.drill;
