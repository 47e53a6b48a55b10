/** The pure-Java backend: ring, double binary tree and the rest, over links between the ranks. */
package io.nccl4j.reference;
