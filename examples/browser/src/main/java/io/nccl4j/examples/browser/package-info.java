/**
 * For tests alone: opens a page that a program has written in a browser without a screen, and asks
 * it what it shows. No program needs this.
 */
package io.nccl4j.examples.browser;
