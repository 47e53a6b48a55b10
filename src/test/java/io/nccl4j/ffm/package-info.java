/**
 * Tests of the native path, and what says which native libraries a test needs. One Java process
 * loads one pair of libraries, so the build runs these tests in processes of their own.
 */
package io.nccl4j.ffm;
