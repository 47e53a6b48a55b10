/** The command-line tools, one package each, and the command that starts them by name. */
package io.nccl4j.tools;
