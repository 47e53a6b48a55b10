/** The drivers of the reference backend. */
package io.nccl4j.internal.reference;
