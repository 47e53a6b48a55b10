/**
 * What a person runs, {@code scripts/}: that it says what it is for, and refuses what it is not.
 */
package io.nccl4j.scripts;
