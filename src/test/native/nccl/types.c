/*
 * The twelve data types and their arithmetic, element by element as NCCL's kernels do it: integers wrap; the small
 * floats are computed in float32 and rounded to the type, to nearest even, at every step; float8 goes through float16
 * and saturates; minimum and maximum prefer a number to a NaN.
 */
#include "clique.h"

#include <math.h>
#include <string.h>

size_t type_size(ncclDataType_t type) {
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
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

bool type_valid(ncclDataType_t type) { return (int)type >= 0 && (int)type < RELEASE_TYPES; }
bool type_is_integer(ncclDataType_t type) { return (int)type <= ncclUint64; }

/* ---- small floats ---- */

struct format {
  int mantissa, bias;
  uint32_t infinity; /* code of infinity, or of what would be next to the largest number */
  uint32_t nan, sign;
  bool saturates, has_infinity;
};

static const struct format half_format = {10, 15, 0x7c00, 0x7fff, 0x8000, false, true};
static const struct format brain_format = {7, 127, 0x7f80, 0x7fff, 0x8000, false, true};
static const struct format e4m3_format = {3, 7, 0x7f, 0x7f, 0x80, true, false};
static const struct format e5m2_format = {2, 15, 0x7c, 0x7f, 0x80, true, true};

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t shift_to_even(uint32_t value, int shift) {
  if (shift > 25) return 0;
  return (value + (1u << (shift - 1)) - 1 + ((value >> shift) & 1)) >> shift;
}

static uint32_t encode(const struct format *f, float value) {
  uint32_t bits = bits_of(value), sign = bits >> 31 ? f->sign : 0;
  uint32_t exponent = (bits >> 23) & 0xff, mantissa = bits & 0x7fffff, code;
  if (isnan(value)) return f->nan;
  if (exponent == 0xff) {
    code = f->infinity;
  } else {
    int shift = 23 - f->mantissa, scaled = (int)(exponent ? exponent : 1) - 127 + f->bias;
    uint32_t full = mantissa | (exponent ? 0x800000u : 0);
    if (scaled >= 1 && exponent) code = shift_to_even(((uint32_t)scaled << 23) | mantissa, shift);
    else code = shift_to_even(full, shift + 1 - scaled);
    if (code > f->infinity) code = f->infinity;
  }
  if (code == f->infinity && f->saturates) code--;
  return sign | code;
}

static float decode(const struct format *f, uint32_t code) {
  uint32_t magnitude = code & (f->sign - 1), exponent = magnitude >> f->mantissa;
  uint32_t mantissa = magnitude & ((1u << f->mantissa) - 1);
  float value;
  if (magnitude > f->infinity || (magnitude == f->infinity && !f->has_infinity)) value = NAN;
  else if (magnitude == f->infinity) value = INFINITY;
  else if (exponent == 0) value = ldexpf((float)mantissa, 1 - f->bias - f->mantissa);
  else value = float_of((uint32_t)((int)exponent - f->bias + 127) << 23 | mantissa << (23 - f->mantissa));
  return code & f->sign ? -value : value;
}

static float via_half(float value) { return decode(&half_format, encode(&half_format, value)); }

static float combine(enum reduction_kind kind, float a, float b) {
  switch (kind) {
    case REDUCE_SUM: return a + b;
    case REDUCE_PROD: return a * b;
    case REDUCE_MAX: return fmaxf(a, b);
    default: return fminf(a, b);
  }
}

#define SMALL_FLOAT(NAME, T, FORMAT, STEP)                                                         \
  static void NAME##_fold(enum reduction_kind kind, T *a, const T *b, size_t count) {              \
    for (size_t i = 0; i < count; i++)                                                             \
      a[i] = (T)encode(&FORMAT, STEP(combine(kind, decode(&FORMAT, a[i]), decode(&FORMAT, b[i])))); \
  }                                                                                                \
  static void NAME##_scale(T *to, const T *from, T scalar, size_t count) {                         \
    for (size_t i = 0; i < count; i++)                                                             \
      to[i] = (T)encode(&FORMAT, STEP(decode(&FORMAT, from[i]) * decode(&FORMAT, scalar)));        \
  }

SMALL_FLOAT(float16, uint16_t, half_format, )
SMALL_FLOAT(bfloat16, uint16_t, brain_format, )
SMALL_FLOAT(e4m3, uint8_t, e4m3_format, via_half)
SMALL_FLOAT(e5m2, uint8_t, e5m2_format, via_half)

/* ---- integers (in unsigned, where wrapping is defined) and the large floats ---- */

#define EACH(EXPRESSION)                                                                           \
  for (size_t i = 0; i < count; i++) a[i] = (EXPRESSION);                                          \
  break

#define INTEGER(NAME, T, UNSIGNED)                                                                 \
  static void NAME##_fold(enum reduction_kind kind, T *a, const T *b, size_t count) {              \
    switch (kind) {                                                                                \
      case REDUCE_SUM: EACH((T)((UNSIGNED)a[i] + (UNSIGNED)b[i]));                                 \
      case REDUCE_PROD: EACH((T)((UNSIGNED)a[i] * (UNSIGNED)b[i]));                                \
      case REDUCE_MAX: EACH(a[i] > b[i] ? a[i] : b[i]);                                            \
      case REDUCE_MIN: EACH(a[i] < b[i] ? a[i] : b[i]);                                            \
    }                                                                                              \
  }                                                                                                \
  static void NAME##_scale(T *to, const T *from, T scalar, size_t count) {                         \
    for (size_t i = 0; i < count; i++) to[i] = (T)((UNSIGNED)from[i] * (UNSIGNED)scalar);          \
  }                                                                                                \
  static void NAME##_divide(T *a, int divisor, size_t count) {                                     \
    for (size_t i = 0; i < count; i++) a[i] = (T)(a[i] / (T)divisor);                              \
  }

INTEGER(int8, int8_t, uint32_t)
INTEGER(uint8, uint8_t, uint32_t)
INTEGER(int32, int32_t, uint32_t)
INTEGER(uint32, uint32_t, uint32_t)
INTEGER(int64, int64_t, uint64_t)
INTEGER(uint64, uint64_t, uint64_t)

#define LARGE_FLOAT(NAME, T, MAX, MIN)                                                             \
  static void NAME##_fold(enum reduction_kind kind, T *a, const T *b, size_t count) {              \
    switch (kind) {                                                                                \
      case REDUCE_SUM: EACH(a[i] + b[i]);                                                          \
      case REDUCE_PROD: EACH(a[i] * b[i]);                                                         \
      case REDUCE_MAX: EACH(MAX(a[i], b[i]));                                                      \
      case REDUCE_MIN: EACH(MIN(a[i], b[i]));                                                      \
    }                                                                                              \
  }                                                                                                \
  static void NAME##_scale(T *to, const T *from, T scalar, size_t count) {                         \
    for (size_t i = 0; i < count; i++) to[i] = from[i] * scalar;                                   \
  }

LARGE_FLOAT(float32, float, fmaxf, fminf)
LARGE_FLOAT(float64, double, fmax, fmin)

#define EACH_INTEGER(X)                                                                            \
  X(ncclInt8, int8, int8_t)                                                                        \
  X(ncclUint8, uint8, uint8_t)                                                                     \
  X(ncclInt32, int32, int32_t)                                                                     \
  X(ncclUint32, uint32, uint32_t)                                                                  \
  X(ncclInt64, int64, int64_t)                                                                     \
  X(ncclUint64, uint64, uint64_t)
#define EACH_TYPE(X)                                                                               \
  EACH_INTEGER(X)                                                                                  \
  X(ncclFloat16, float16, uint16_t)                                                                \
  X(ncclFloat32, float32, float)                                                                   \
  X(ncclFloat64, float64, double)                                                                  \
  X(ncclBfloat16, bfloat16, uint16_t)                                                              \
  X(ncclFloat8e4m3, e4m3, uint8_t)                                                                 \
  X(ncclFloat8e5m2, e5m2, uint8_t)

void type_fold(ncclDataType_t type, enum reduction_kind kind, void *accumulator, const void *operand, size_t count) {
#define FOLD(TYPE, NAME, T)                                                                        \
  case TYPE: NAME##_fold(kind, accumulator, operand, count); break;
  switch (type) {
    EACH_TYPE(FOLD)
    default: break;
  }
}

void type_scale(ncclDataType_t type, void *to, const void *from, const void *scalar, size_t count) {
#define SCALE(TYPE, NAME, T)                                                                       \
  case TYPE: {                                                                                     \
    T value;                                                                                       \
    memcpy(&value, scalar, sizeof value);                                                          \
    NAME##_scale(to, from, value, count);                                                          \
    break;                                                                                         \
  }
  switch (type) {
    EACH_TYPE(SCALE)
    default: break;
  }
}

void type_divide(ncclDataType_t type, void *values, int divisor, size_t count) {
#define DIVIDE(TYPE, NAME, T)                                                                      \
  case TYPE: NAME##_divide(values, divisor, count); break;
  switch (type) {
    EACH_INTEGER(DIVIDE)
    default: break;
  }
}

static void store(void *to, uint32_t code, size_t bytes) {
  uint16_t two = (uint16_t)code;
  uint8_t one = (uint8_t)code;
  if (bytes == 2) memcpy(to, &two, 2);
  else memcpy(to, &one, 1);
}

void type_reciprocal(ncclDataType_t type, int n, void *scalar) {
  double exact = 1.0 / n;
  float rounded = (float)exact;
  switch (type) {
    case ncclFloat64: memcpy(scalar, &exact, sizeof exact); break;
    case ncclFloat32: memcpy(scalar, &rounded, sizeof rounded); break;
    case ncclFloat16: store(scalar, encode(&half_format, rounded), 2); break;
    case ncclBfloat16: store(scalar, encode(&brain_format, rounded), 2); break;
    case ncclFloat8e4m3: store(scalar, encode(&e4m3_format, rounded), 1); break;
    case ncclFloat8e5m2: store(scalar, encode(&e5m2_format, rounded), 1); break;
    default: break;
  }
}
