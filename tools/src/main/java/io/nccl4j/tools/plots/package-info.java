/** Charts and tables, written as an HTML page for any screen. */
package io.nccl4j.tools.plots;
