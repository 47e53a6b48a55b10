/** The {@code flight} command: compares the last operations of the ranks of a job. */
package io.nccl4j.tools.flight;
