/* Tests of the arithmetic: every type and operator; see README.md. */
#include "selftest_check.h"
/* The library does not export these. */
#include "nccl/arithmetic.c"

static const ncclDataType_t all_types[] = {ncclInt8,    ncclUint8,    ncclInt32,      ncclUint32,
                                           ncclInt64,   ncclUint64,   ncclFloat16,    ncclFloat32,
                                           ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};

/* Arguments of the minimum and the maximum; those of integers are masks. */
enum { FLOAT_MIN = 0, FLOAT_MAX = 1 };

/* a op b, for values of up to eight bytes. They are passed as bytes, since the compiler may assume that a uint64_t is
 * not changed as another type. */
static uint64_t reduced(ncclDataType_t type, enum operator operator, uint64_t argument, uint64_t a, uint64_t b) {
  uint64_t values[3] = {a, 0, UINT64_MAX};
  _Alignas(uint64_t) char bytes[sizeof values], others[sizeof b];
  memcpy(bytes, values, sizeof values);
  memcpy(others, &b, sizeof b);
  arithmetic_reduce(operator, type, argument, bytes, others, 1);
  memcpy(values, bytes, sizeof values);
  CHECK(values[1] == 0 && values[2] == UINT64_MAX);
  return values[0];
}

/* The value after `step` */
static uint64_t after(void (*step)(ncclDataType_t, uint64_t, void *, size_t), ncclDataType_t type, uint64_t argument,
                      uint64_t value) {
  _Alignas(uint64_t) char bytes[sizeof value];
  memcpy(bytes, &value, sizeof value);
  step(type, argument, bytes, 1);
  memcpy(&value, bytes, sizeof value);
  return value;
}

static uint64_t multiplied(ncclDataType_t type, uint64_t argument, uint64_t value) {
  return after(arithmetic_multiply, type, argument, value);
}

static uint64_t divided(ncclDataType_t type, uint64_t argument, uint64_t value) {
  return after(arithmetic_divide, type, argument, value);
}

static void test_integers(void) {
  CHECK(reduced(ncclUint8, SUM, 0, 200, 100) == 44);
  CHECK(reduced(ncclUint8, PROD, 0, 20, 20) == 144);
  CHECK(reduced(ncclUint32, SUM, 0, 0xffffffff, 2) == 1);
  CHECK(reduced(ncclUint32, PROD, 0, 0x10001, 0x10001) == 0x20001);
  CHECK(reduced(ncclUint64, SUM, 0, UINT64_MAX, 5) == 4);
  CHECK(reduced(ncclUint64, PROD, 0, UINT64_C(1) << 63, 3) == UINT64_C(1) << 63);
  /* The masks: nothing for the minimum of unsigned values, the sign for that of signed ones, the others for the
   * maximum. */
  CHECK(reduced(ncclUint8, MIN_MAX, 0, 200, 100) == 100 && reduced(ncclUint8, MIN_MAX, 0xff, 200, 100) == 200);
  CHECK(reduced(ncclUint8, MIN_MAX, 0x80, 200, 100) == 200 && reduced(ncclUint8, MIN_MAX, 0x7f, 200, 100) == 100);
  CHECK(reduced(ncclUint32, MIN_MAX, 0x80000000, 0xfffffffe, 1) == 0xfffffffe);
  CHECK(reduced(ncclUint32, MIN_MAX, 0x7fffffff, 0xfffffffe, 1) == 1);
  CHECK(reduced(ncclUint64, MIN_MAX, UINT64_C(1) << 63, UINT64_MAX, 1) == UINT64_MAX);
  CHECK(reduced(ncclUint64, MIN_MAX, UINT64_MAX >> 1, UINT64_MAX, 1) == 1);
  CHECK(multiplied(ncclUint8, 3, 100) == 44 && multiplied(ncclInt32, (uint32_t)-2, 5) == (uint32_t)-10);
  CHECK(multiplied(ncclUint64, 7, UINT64_C(1) << 62) == (UINT64_C(7) << 62));
  for (int value = -128; value < 256; value++)
    for (int divisor = 1; divisor < 130; divisor++) {
      if (value < 128) CHECK((int8_t)divided(ncclUint8, 2 * (uint64_t)divisor + 1, (uint8_t)value) == value / divisor);
      if (value >= 0) CHECK(divided(ncclUint8, 2 * (uint64_t)divisor, (uint64_t)value) == (uint64_t)(value / divisor));
    }
  CHECK((int32_t)divided(ncclUint32, 2 * 3 + 1, (uint32_t)-7) == -2 &&
        divided(ncclUint32, 6, 0xffffffff) == 0x55555555);
  CHECK((int32_t)divided(ncclUint32, 2 * 2 + 1, 0x80000000) == -0x40000000);
  CHECK((int64_t)divided(ncclUint64, 2 * 3 + 1, (uint64_t)-8) == -2 &&
        divided(ncclUint64, 4, UINT64_MAX) == UINT64_MAX / 2);
}

static uint64_t f(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint64_t d(double value) { return bits_of(value); }

static void test_floats(void) {
  CHECK(reduced(ncclFloat32, SUM, 0, f(0x1p24f), f(1)) == f(0x1p24f)); /* half of the last place, to even */
  CHECK(reduced(ncclFloat32, SUM, 0, f(0x1p24f), f(3)) == f(0x1p24f + 4));
  CHECK(reduced(ncclFloat32, PROD, 0, f(1.5f), f(-4)) == f(-6) && multiplied(ncclFloat32, f(0.25f), f(3)) == f(0.75f));
  CHECK(reduced(ncclFloat64, SUM, 0, d(0.1), d(0.2)) == d(0.30000000000000004));
  CHECK(reduced(ncclFloat64, PROD, 0, d(3), d(5)) == d(15) && multiplied(ncclFloat64, d(0.5), d(3)) == d(1.5));
  CHECK(reduced(ncclFloat32, MIN_MAX, FLOAT_MIN, f(2), f(-3)) == f(-3));
  CHECK(reduced(ncclFloat32, MIN_MAX, FLOAT_MAX, f(2), f(-3)) == f(2));
  CHECK(reduced(ncclFloat32, MIN_MAX, FLOAT_MIN, f(NAN), f(7)) == f(7));
  CHECK(reduced(ncclFloat32, MIN_MAX, FLOAT_MAX, f(7), f(NAN)) == f(7));
  CHECK(reduced(ncclFloat32, MIN_MAX, FLOAT_MIN, f(0.f), f(-0.f)) == f(-0.f));
  CHECK(reduced(ncclFloat32, MIN_MAX, FLOAT_MAX, f(-0.f), f(0.f)) == f(0.f));
  CHECK(reduced(ncclFloat64, MIN_MAX, FLOAT_MAX, d(NAN), d(-7)) == d(-7));
  CHECK(reduced(ncclFloat64, MIN_MAX, FLOAT_MIN, d(-0.0), d(0.0)) == d(-0.0));
}

/* Rounds to a small format by trying all of its numbers; the reference for encode(). */
static uint32_t nearest(const struct format *format, double value) {
  uint32_t best = 0, count = format->infinity;
  double least = INFINITY;
  for (uint32_t code = 0; code < count; code++) {
    double distance = fabs(fabs(value) - decode(format, code));
    if (distance < least || (distance == least && code % 2 == 0)) least = distance, best = code;
  }
  double largest = decode(format, count - 1), step = largest - decode(format, count - 2);
  if (!format->saturates && fabs(value) >= largest + step / 2) best = format->infinity;
  return best | (signbit(value) ? format->sign : 0);
}

static void test_format(const struct format *format, unsigned pairs) {
  uint32_t seed = 1;
  CHECK(encode(format, NAN) == format->nan && isnan(decode(format, format->nan)));
  for (uint32_t code = 0; code < 2 * format->sign; code++) {
    double value = decode(format, code);
    if (!isnan(value) && !isinf(value)) CHECK(encode(format, value) == code);
  }
  for (unsigned i = 0; i < pairs; i++) {
    seed = seed * 1103515245 + 12345;
    double a = decode(format, (seed >> 16) & (2 * format->sign - 1));
    seed = seed * 1103515245 + 12345;
    double b = decode(format, (seed >> 16) & (2 * format->sign - 1));
    if (isnan(a) || isnan(b) || isinf(a) || isinf(b)) continue;
    CHECK(encode(format, a + b) == nearest(format, a + b));
    CHECK(encode(format, a * b) == nearest(format, a * b));
  }
}

static void test_small_floats(void) {
  test_format(&half_format, 300);
  test_format(&brain_format, 300);
  test_format(&e4m3_format, 20000);
  test_format(&e5m2_format, 20000);
  /* Known codes: 1, 2048, 65504 (the largest), and infinity of float16; 1 and 256 of bfloat16. */
  CHECK(decode(&half_format, 0x3c00) == 1 && decode(&half_format, 0x6800) == 2048 &&
        decode(&half_format, 0x7bff) == 65504);
  CHECK(reduced(ncclFloat16, SUM, 0, 0x6800, 0x3c00) == 0x6800); /* 2049 is a tie, to even */
  CHECK(reduced(ncclFloat16, SUM, 0, 0x7bff, 0x7bff) == 0x7c00 &&
        reduced(ncclFloat16, SUM, 0, 0x7c00, 0xfc00) == 0x7fff);
  CHECK(reduced(ncclFloat16, PROD, 0, 0x0001, 0x3800) == 0 && reduced(ncclFloat16, PROD, 0, 0x0003, 0x3800) == 2);
  CHECK(reduced(ncclFloat16, MIN_MAX, FLOAT_MIN, 0x7e00, 0x3c00) == 0x3c00);
  CHECK(reduced(ncclFloat16, MIN_MAX, FLOAT_MIN, 0x0000, 0x8000) == 0x8000);
  CHECK(reduced(ncclFloat16, MIN_MAX, FLOAT_MAX, 0x7e00, 0xffff) == 0x7fff); /* two NaNs */
  CHECK(multiplied(ncclFloat16, 0x3800, 0x6800) == 0x6400);
  CHECK(decode(&brain_format, 0x3f80) == 1 && decode(&brain_format, 0x4380) == 256);
  CHECK(reduced(ncclBfloat16, SUM, 0, 0x4380, 0x3f80) == 0x4380 &&
        reduced(ncclBfloat16, SUM, 0, 0x4380, 0x4040) == 0x4382);
  CHECK(reduced(ncclBfloat16, PROD, 0, 0x7f7f, 0x4000) == 0x7f80 && multiplied(ncclBfloat16, 0x3f00, 0x4380) == 0x4300);
  /* float8: 448 and 57344 are the largest; sums go through float16. */
  CHECK(decode(&e4m3_format, 0x7e) == 448 && decode(&e5m2_format, 0x7b) == 57344);
  CHECK(reduced(ncclFloat8e4m3, SUM, 0, 0x7e, 0x7e) == 0x7e && reduced(ncclFloat8e4m3, SUM, 0, 0xfe, 0xfe) == 0xfe);
  CHECK(reduced(ncclFloat8e5m2, SUM, 0, 0x7b, 0x7b) == 0x7b && reduced(ncclFloat8e5m2, SUM, 0, 0x7c, 0x3c) == 0x7b);
  CHECK(reduced(ncclFloat8e4m3, SUM, 0, 0x7f, 0x38) == 0x7f);
  CHECK(reduced(ncclFloat8e4m3, MIN_MAX, FLOAT_MAX, 0x7f, 0x38) == 0x38);
  CHECK(multiplied(ncclFloat8e4m3, 0x30, 0x38) == 0x30 && multiplied(ncclFloat8e5m2, 0x38, 0x3c) == 0x38);
  /* 57344 * 2^-16 (the least) would be exact, but 448 * 448 is infinite in float16, which saturates. */
  CHECK(reduced(ncclFloat8e4m3, PROD, 0, 0x7e, 0x7e) == 0x7e);
}

int main(void) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  for (size_t i = 0; i < sizeof all_types / sizeof *all_types; i++) CHECK(type_bytes(all_types[i]) == sizes[i]);
  test_integers();
  test_floats();
  test_small_floats();
  printf("arithmetic: passed\n");
  return 0;
}
