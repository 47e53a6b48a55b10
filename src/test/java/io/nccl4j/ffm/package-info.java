/**
 * Tests of the native path. A Java process loads one pair of native libraries, so the build runs
 * these tests in separate processes.
 */
package io.nccl4j.ffm;
