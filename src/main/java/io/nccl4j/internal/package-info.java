/**
 * Between the generated bindings and the rooms that use them: finding and loading the native
 * libraries, the one place where a result code becomes an exception, waits with deadlines around
 * calls that have none, and what is to be done whatever fails. Not exported.
 */
package io.nccl4j.internal;
