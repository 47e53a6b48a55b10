/**
 * Charts, drawn as a picture file or on a page that shows them on any screen. What is measured or
 * predicted, and what stands in a chart, is the matter of whoever makes one.
 */
package io.nccl4j.tools.plots;
