/** The drivers of the reference backend, which put the parts below together. */
package io.nccl4j.internal.reference;
