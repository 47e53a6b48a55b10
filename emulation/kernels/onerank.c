/*
 * The kernel of a communicator of one rank. Its type is only in its name, which is that of a C++ template's instance.
 * Its parameters are the output, the input, the number of elements, the operator's argument, and whether that is an
 * address.
 */
#include "onerank.h"

#include "cudart/cudart.h"
#include "nccl/arithmetic.h"

#include <string.h>

struct parameters {
  char *output;
  const char *input;
  size_t count;
  uint64_t argument;
  bool is_address;
};

_Static_assert(sizeof(struct parameters) == ONE_RANK_BYTES, "the parameters");

static const char template_name[] = "oneRankReduceI13FuncPreMulSumI"; /* the encoded type follows */

bool one_rank_is(const char *name) { return strstr(name, template_name) != NULL; }

static ncclDataType_t type_of(const char *name) {
  static const struct {
    const char *code;
    ncclDataType_t type;
  } types[] = {
      {"a", ncclInt8},
      {"h", ncclUint8},
      {"i", ncclInt32},
      {"j", ncclUint32},
      {"l", ncclInt64},
      {"m", ncclUint64},
      {"f", ncclFloat32},
      {"d", ncclFloat64},
      {"6__half", ncclFloat16},
      {"13__nv_bfloat16", ncclBfloat16},
      {"13__nv_fp8_e4m3", ncclFloat8e4m3},
      {"13__nv_fp8_e5m2", ncclFloat8e5m2},
  };
  const char *code = strstr(name, template_name) + sizeof template_name - 1;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strncmp(code, types[i].code, strlen(types[i].code)) == 0) return types[i].type;
  not_emulated("the kernel %s (its type is unknown)", name);
}

void one_rank_gather(void *const *parameters, void *buffer) {
  struct parameters p;
  memset(&p, 0, sizeof p);
  memcpy(&p.output, parameters[0], sizeof p.output);
  memcpy(&p.input, parameters[1], sizeof p.input);
  memcpy(&p.count, parameters[2], sizeof p.count);
  memcpy(&p.argument, parameters[3], sizeof p.argument);
  memcpy(&p.is_address, parameters[4], sizeof p.is_address);
  memcpy(buffer, &p, sizeof p);
}

bool one_rank_run(const char *name, const void *arguments, int device) {
  struct parameters p;
  memcpy(&p, arguments, sizeof p);
  ncclDataType_t type = type_of(name);
  size_t element = type_bytes(type), bytes = p.count * element;
  if (!nccl4j_standin_usable(p.input, bytes, device) || !nccl4j_standin_writable(p.output, bytes, device)) return false;
  uint64_t scalar = p.argument;
  if (p.is_address) {
    scalar = 0;
    memcpy(&scalar, (const void *)(uintptr_t)p.argument, element);
  }
  if (p.output != p.input) memmove(p.output, p.input, bytes);
  arithmetic_multiply(type, scalar, p.output, p.count);
  return true;
}
