/** The smallest program on nccl4j: an all-reduce whose result every rank checks. */
package io.nccl4j.examples.hello;
