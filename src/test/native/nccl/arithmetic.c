/*
 * Arithmetic of NCCL's kernels. Integers wrap, and signed ones are passed as unsigned: minimum and maximum compare after
 * an exclusive or with a mask, and the division's argument says whether the values are signed. Sums and products of the
 * small floats are rounded to the type, to nearest even, at every step; those of float8 to float16 first, and then they
 * saturate. Minimum and maximum prefer a number to a NaN, and -0 is below +0.
 */
#include "arithmetic.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

size_t type_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

/* ---- small floats ---- */

struct format {
  int mantissa, bias; /* bits, exponent of 1 */
  uint32_t sign, infinity /* or the code after the largest number */, nan;
  bool saturates, has_infinity;
};

static const struct format half_format = {10, 15, 0x8000, 0x7c00, 0x7fff, false, true};
static const struct format brain_format = {7, 127, 0x8000, 0x7f80, 0x7fff, false, true};
static const struct format e4m3_format = {3, 7, 0x80, 0x7f, 0x7f, true, false};
static const struct format e5m2_format = {2, 15, 0x80, 0x7c, 0x7f, true, true};

static uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static double double_of(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Every number of the formats, and the sum and product of two, are normal numbers of float64 or zero. */
static double decode(const struct format *format, uint32_t code) {
  uint32_t magnitude = code & (format->sign - 1);
  double value;
  if (magnitude > format->infinity || (magnitude == format->infinity && !format->has_infinity)) {
    return NAN;
  } else if (magnitude == format->infinity) {
    value = INFINITY;
  } else if (magnitude >> format->mantissa == 0) {
    value = magnitude * double_of((uint64_t)(1 - format->bias - format->mantissa + 1023) << 52);
  } else {
    uint64_t rebias = (uint64_t)(1023 - format->bias) << 52;
    value = double_of(((uint64_t)magnitude << (52 - format->mantissa)) + rebias);
  }
  return code & format->sign ? -value : value;
}

static uint64_t shift_to_even(uint64_t value, int shift) {
  if (shift > 54) return 0;
  return (value + (UINT64_C(1) << (shift - 1)) - 1 + (value >> shift & 1)) >> shift;
}

static uint32_t encode(const struct format *format, double value) {
  if (isnan(value)) return format->nan;
  uint64_t bits = bits_of(value), magnitude = bits & (UINT64_MAX >> 1);
  uint32_t sign = bits >> 63 ? format->sign : 0;
  int exponent = (int)(magnitude >> 52) - 1023 + format->bias, shift = 52 - format->mantissa;
  uint64_t code;
  if (exponent >= 1) {
    code = shift_to_even(magnitude - ((uint64_t)(1023 - format->bias) << 52), shift);
  } else {
    uint64_t full = (magnitude & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    code = magnitude == 0 ? 0 : shift_to_even(full, shift + 1 - exponent);
  }
  if (code >= format->infinity) code = format->saturates ? format->infinity - 1 : format->infinity;
  return sign | (uint32_t)code;
}

static double through_half(double value) { return decode(&half_format, encode(&half_format, value)); }

static double exactly(double value) { return value; }

/* ---- one step of each operator ---- */

static double least(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) ? b : a;
  return a < b || (a == b && signbit(a)) ? a : b;
}

static double greatest(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) ? b : a;
  return a > b || (a == b && !signbit(a)) ? a : b;
}

/* The sum of two numbers of a small format, rounded to float64, rounds to the format as the exact sum does. */
#define SMALL_FLOAT(NAME, T, FORMAT, STEP)                                                                             \
  static void NAME##_reduce(enum operator operator, uint64_t argument, T *restrict values, const T *restrict others,   \
                            size_t count) {                                                                            \
    for (size_t i = 0; i < count; i++) {                                                                               \
      double a = decode(&FORMAT, values[i]), b = decode(&FORMAT, others[i]);                                           \
      double result = operator == PROD    ? a * b                                                                      \
                    : operator != MIN_MAX ? a + b                                                                      \
                    : argument & 1        ? greatest(a, b)                                                             \
                                          : least(a, b);                                                               \
      values[i] = (T)encode(&FORMAT, STEP(result));                                                                    \
    }                                                                                                                  \
  }                                                                                                                    \
  static void NAME##_multiply(uint64_t argument, T *values, size_t count) {                                            \
    double scalar = decode(&FORMAT, (T)argument);                                                                      \
    for (size_t i = 0; i < count; i++) values[i] = (T)encode(&FORMAT, STEP(decode(&FORMAT, values[i]) * scalar));      \
  }

SMALL_FLOAT(half, uint16_t, half_format, exactly)
SMALL_FLOAT(brain, uint16_t, brain_format, exactly)
SMALL_FLOAT(e4m3, uint8_t, e4m3_format, through_half)
SMALL_FLOAT(e5m2, uint8_t, e5m2_format, through_half)

/* values[i] = EXPRESSION for all i. A loop for each operator runs several times faster than one loop for all. */
#define EACH(EXPRESSION)                                                                                               \
  for (size_t i = 0; i < count; i++) values[i] = (EXPRESSION)

#define FLOAT(NAME, T)                                                                                                 \
  static void NAME##_reduce(enum operator operator, uint64_t argument, T *restrict values, const T *restrict others,   \
                            size_t count) {                                                                            \
    if (operator == PROD) EACH(values[i] * others[i]);                                                                 \
    else if (operator != MIN_MAX) EACH(values[i] + others[i]);                                                         \
    else if (argument & 1) EACH((T)greatest(values[i], others[i]));                                                    \
    else EACH((T)least(values[i], others[i]));                                                                         \
  }                                                                                                                    \
  static void NAME##_multiply(uint64_t argument, T *values, size_t count) {                                            \
    T scalar;                                                                                                          \
    memcpy(&scalar, &argument, sizeof scalar);                                                                         \
    EACH(values[i] * scalar);                                                                                          \
  }

FLOAT(single, float)
FLOAT(wide, double)

/* The division is exact and towards zero; its argument is twice the divisor, plus 1 for signed values. */
#define INTEGER(NAME, T, SIGNED)                                                                                       \
  static void NAME##_reduce(enum operator operator, uint64_t argument, T *restrict values, const T *restrict others,   \
                            size_t count) {                                                                            \
    T mask = (T)argument;                                                                                              \
    if (operator == PROD) EACH((T)(values[i] * others[i]));                                                            \
    else if (operator != MIN_MAX) EACH((T)(values[i] + others[i]));                                                    \
    else EACH((T)(values[i] ^ mask) < (T)(others[i] ^ mask) ? values[i] : others[i]);                                  \
  }                                                                                                                    \
  static void NAME##_multiply(uint64_t argument, T *values, size_t count) { EACH((T)(values[i] * (T)argument)); }      \
  static void NAME##_divide(uint64_t argument, T *values, size_t count) {                                              \
    uint64_t divisor = argument >> 1;                                                                                  \
    for (size_t i = 0; i < count; i++) {                                                                               \
      bool negative = (argument & 1) != 0 && (SIGNED)values[i] < 0;                                                    \
      uint64_t quotient = (negative ? (T)-values[i] : values[i]) / divisor;                                            \
      values[i] = (T)(negative ? -quotient : quotient);                                                                \
    }                                                                                                                  \
  }

INTEGER(byte, uint8_t, int8_t)
INTEGER(word, uint32_t, int32_t)
INTEGER(long, uint64_t, int64_t)

#define FOR_TYPE(type, WHAT)                                                                                           \
  switch (type) {                                                                                                      \
    case ncclInt8:                                                                                                     \
    case ncclUint8: WHAT(byte); break;                                                                                 \
    case ncclInt32:                                                                                                    \
    case ncclUint32: WHAT(word); break;                                                                                \
    case ncclInt64:                                                                                                    \
    case ncclUint64: WHAT(long); break;                                                                                \
    case ncclFloat16: WHAT(half); break;                                                                               \
    case ncclFloat32: WHAT(single); break;                                                                             \
    case ncclFloat64: WHAT(wide); break;                                                                               \
    case ncclBfloat16: WHAT(brain); break;                                                                             \
    case ncclFloat8e4m3: WHAT(e4m3); break;                                                                            \
    default: WHAT(e5m2); break;                                                                                        \
  }

void arithmetic_multiply(ncclDataType_t type, uint64_t argument, void *values, size_t count) {
#define MULTIPLY(NAME) NAME##_multiply(argument, values, count)
  FOR_TYPE(type, MULTIPLY)
}

void arithmetic_reduce(enum operator operator, ncclDataType_t type, uint64_t argument, void *values, const void *others,
                       size_t count) {
#define REDUCE_VALUES(NAME) NAME##_reduce(operator, argument, values, others, count)
  FOR_TYPE(type, REDUCE_VALUES)
}

void arithmetic_divide(ncclDataType_t type, uint64_t argument, void *values, size_t count) {
  switch (type_bytes(type)) {
    case 1: byte_divide(argument, values, count); break;
    case 4: word_divide(argument, values, count); break;
    default: long_divide(argument, values, count); break;
  }
}

static double read_value(ncclDataType_t type, const void *values, size_t index) {
  switch (type) {
    case ncclFloat16: return decode(&half_format, ((const uint16_t *)values)[index]);
    case ncclBfloat16: return decode(&brain_format, ((const uint16_t *)values)[index]);
    case ncclFloat8e4m3: return decode(&e4m3_format, ((const uint8_t *)values)[index]);
    case ncclFloat8e5m2: return decode(&e5m2_format, ((const uint8_t *)values)[index]);
    default: return ((const float *)values)[index];
  }
}

static void write_value(ncclDataType_t type, void *values, size_t index, double value) {
  switch (type) {
    case ncclFloat16: ((uint16_t *)values)[index] = (uint16_t)encode(&half_format, value); break;
    case ncclBfloat16: ((uint16_t *)values)[index] = (uint16_t)encode(&brain_format, value); break;
    case ncclFloat8e4m3: ((uint8_t *)values)[index] = (uint8_t)encode(&e4m3_format, value); break;
    case ncclFloat8e5m2: ((uint8_t *)values)[index] = (uint8_t)encode(&e5m2_format, value); break;
    default: ((float *)values)[index] = (float)value; break;
  }
}

void arithmetic_convert(ncclDataType_t from_type, const void *from, ncclDataType_t to_type, void *to, size_t count) {
  if (from_type == to_type) memcpy(to, from, count * type_bytes(to_type));
  else
    for (size_t i = 0; i < count; i++) write_value(to_type, to, i, read_value(from_type, from, i));
}
