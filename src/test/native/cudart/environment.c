/*
 * Variables of the environment. One that cannot be read ends the process: a test would otherwise run on a machine, or
 * with faults, that it has not asked for.
 */
#include "cudart.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void nccl4j_standin_refuse_variable(const char *name, const char *rule) {
  fprintf(stderr, "nccl4j stand-in: %s='%s': it must be %s\n", name, getenv(name), rule);
  abort();
}

int64_t nccl4j_standin_number(const char *name, int64_t otherwise, int64_t least, int64_t most) {
  const char *text = getenv(name);
  if (!text) return otherwise;
  char *end, rule[80];
  errno = 0;
  int64_t number = strtoll(text, &end, 0);
  if (end != text && *end == 0 && errno == 0 && number >= least && number <= most) return number;
  snprintf(rule, sizeof rule, "a number from %" PRId64 " to %" PRId64, least, most);
  nccl4j_standin_refuse_variable(name, rule);
}
