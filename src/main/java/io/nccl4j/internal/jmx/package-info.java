/**
 * The registration of the process's statistics with JMX. Depends on no other package of the library
 * except {@code internal.util}. Not exported.
 */
package io.nccl4j.internal.jmx;
