/**
 * Between the generated bindings and the rooms that use them: finding and loading the native
 * libraries, the one place where a result code becomes an exception, and waits with deadlines
 * around calls that have none. Not exported.
 */
package io.nccl4j.internal;
