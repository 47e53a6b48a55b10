/* The data types and their arithmetic. */
#include "types.h"

#include "arithmetic.h"
#include "release.h"

#include <string.h>

size_t type_size(ncclDataType_t type) { return (unsigned)type < ncclNumTypes ? type_bytes(type) : 0; }
bool type_valid(ncclDataType_t type) { return (int)type >= 0 && (int)type < RELEASE_TYPES; }
bool type_is_integer(ncclDataType_t type) { return (int)type <= ncclUint64; }

static bool is_signed(ncclDataType_t type) { return type == ncclInt8 || type == ncclInt32 || type == ncclInt64; }

void type_fold(ncclDataType_t type, enum reduction_kind kind, void *accumulator, const void *operand, size_t count) {
  static const enum operator operators[] = {SUM, PROD, MIN_MAX, MIN_MAX};
  /* Of MIN_MAX: the bits with which integers are compared as unsigned ones; of floats, whether it is the maximum. */
  uint64_t sign = is_signed(type) ? UINT64_C(1) << (8 * type_bytes(type) - 1) : 0;
  arithmetic_reduce(operators[kind], type, kind == REDUCE_MAX ? ~sign : sign, accumulator, operand, count);
}

void type_scale(ncclDataType_t type, void *to, const void *from, const void *scalar, size_t count) {
  uint64_t argument = 0;
  memcpy(&argument, scalar, type_bytes(type));
  if (to != from) memcpy(to, from, count * type_bytes(type));
  arithmetic_multiply(type, argument, to, count);
}

void type_divide(ncclDataType_t type, void *values, int divisor, size_t count) {
  arithmetic_divide(type, 2 * (uint64_t)divisor + is_signed(type), values, count);
}

void type_reciprocal(ncclDataType_t type, int n, void *scalar) {
  double exact = 1.0 / n;
  float rounded = (float)exact;
  if (type == ncclFloat64) memcpy(scalar, &exact, sizeof exact);
  else arithmetic_convert(ncclFloat32, &rounded, type, scalar, 1);
}
