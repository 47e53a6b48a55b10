/** Tests of the command-line interface of {@code scripts/}. */
package io.nccl4j.scripts;
