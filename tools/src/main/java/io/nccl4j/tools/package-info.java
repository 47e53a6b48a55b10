/** The commands, each in a package of its own, and the one command that names them all. */
package io.nccl4j.tools;
