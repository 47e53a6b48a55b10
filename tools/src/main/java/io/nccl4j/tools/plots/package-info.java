/** Charts and tables, written as a picture file or as an HTML page for any screen. */
package io.nccl4j.tools.plots;
