/** What of the two C libraries is bound, offered and tested: {@code docs/api-coverage.md}. */
package io.nccl4j.coverage;
