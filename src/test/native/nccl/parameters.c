/*
 * Parameters, as of 2.30: a registry of names, each with a type and a value that is read from the environment at every
 * call. A refused call sets no last error, as in the real library. The registry has the six parameters that NCCL
 * publishes, with their types and defaults, two private ones and, for tests, one of each integer type.
 */
#include "clique.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

NCCL_FUNCTION(ncclParamBind)
NCCL_FUNCTION(ncclParamGetI8)
NCCL_FUNCTION(ncclParamGetI16)
NCCL_FUNCTION(ncclParamGetI32)
NCCL_FUNCTION(ncclParamGetI64)
NCCL_FUNCTION(ncclParamGetU8)
NCCL_FUNCTION(ncclParamGetU16)
NCCL_FUNCTION(ncclParamGetU32)
NCCL_FUNCTION(ncclParamGetU64)
NCCL_FUNCTION(ncclParamGetStr)
NCCL_FUNCTION(ncclParamGet)
NCCL_FUNCTION(ncclParamGetParameter)
NCCL_FUNCTION(ncclParamGetAllParameterKeys)
NCCL_FUNCTION(ncclParamDumpAll)

enum type { I8, I16, I32, I64, U8, U16, U32, U64, BOOL, CSTR, ENUM };
static const int sizes[] = {1, 2, 4, 8, 1, 2, 4, 8, 1, 0, 4};

/* A numeric value is stored as its bits, little-endian; `text` is its printed form, NULL: the number. */
struct ncclParamHandle {
  const char *key;
  enum type type;
  bool published;
  uint64_t number;
  const char *text;
};

static struct ncclParamHandle registry[] = {
    {"NCCL_DEBUG", ENUM, true, 0, "<unknown>"},
    {"NCCL_DEBUG_FILE", CSTR, true, 0, ""},
    {"NCCL_DEBUG_SUBSYS", U64, true, 0x1081, "INIT,ENV,BOOTSTRAP"},
    {"NCCL_DEBUG_TIMESTAMP_FORMAT", CSTR, true, 0, "[%F %T] "},
    {"NCCL_DEBUG_TIMESTAMP_LEVELS", U32, true, 1u << 2, "WARN"},
    {"NCCL_SET_THREAD_NAME", BOOL, true, 0, "FALSE"},
    {"NCCL_NO_CACHE", CSTR, false, 0, ""},
    {"NCCL_PARAM_DUMP_ALL", BOOL, false, 0, "FALSE"},
    {"NCCL4J_STANDIN_I8", I8, false, (uint64_t)INT8_MIN, NULL},
    {"NCCL4J_STANDIN_I16", I16, false, (uint64_t)INT16_MIN, NULL},
    {"NCCL4J_STANDIN_I32", I32, false, (uint64_t)INT32_MIN, NULL},
    {"NCCL4J_STANDIN_I64", I64, false, (uint64_t)INT64_MIN, NULL},
    {"NCCL4J_STANDIN_U8", U8, false, UINT8_MAX, NULL},
    {"NCCL4J_STANDIN_U16", U16, false, UINT16_MAX, NULL},
    {"NCCL4J_STANDIN_U32", U32, false, UINT32_MAX, NULL},
    {"NCCL4J_STANDIN_U64", U64, false, UINT64_MAX, NULL},
};
#define COUNT (sizeof registry / sizeof *registry)
#define TEXT_BYTES 512

/* ---- state that NCCL does not lock: two threads at once would corrupt it ---- */

static atomic_int inside;
static _Atomic int64_t overlaps;

int64_t nccl4j_standin_param_overlaps(void) { return atomic_load(&overlaps); }

static void forget_overlaps(void) { atomic_store(&overlaps, 0); }
__attribute__((constructor)) static void forget_at_reset(void) { nccl4j_standin_on_reset(forget_overlaps); }

static struct ncclParamHandle *find(const char *key) {
  if (atomic_fetch_add(&inside, 1) > 0) atomic_fetch_add(&overlaps, 1);
  usleep(200); /* long enough for an overlap to be detected */
  struct ncclParamHandle *found = NULL;
  for (size_t i = 0; i < COUNT && !found; i++)
    if (strcmp(registry[i].key, key) == 0) found = &registry[i];
  atomic_fetch_sub(&inside, 1);
  return found;
}

/* ---- values ---- */

static bool is_signed(enum type type) { return type <= I64; }

static void text_of(const struct ncclParamHandle *p, char text[TEXT_BYTES]) {
  const char *set = variable(p->key);
  if (set) snprintf(text, TEXT_BYTES, "%s", set);
  else if (p->text) snprintf(text, TEXT_BYTES, "%s", p->text);
  else if (is_signed(p->type)) snprintf(text, TEXT_BYTES, "%" PRId64, (int64_t)p->number);
  else snprintf(text, TEXT_BYTES, "%" PRIu64, p->number);
}

static uint64_t number_of(const struct ncclParamHandle *p) {
  const char *set = variable(p->key);
  if (!set) return p->number;
  return is_signed(p->type) ? (uint64_t)strtoll(set, NULL, 0) : strtoull(set, NULL, 0);
}

static ncclResult_t raw(const struct ncclParamHandle *p, void *out, int capacity, int *length) {
  if (!out || !length || capacity <= 0) return ncclInvalidArgument;
  char text[TEXT_BYTES];
  uint64_t number = number_of(p);
  text_of(p, text);
  int size = p->type == CSTR ? (int)strlen(text) + 1 : sizes[p->type];
  *length = size > capacity ? 0 : size;
  if (size > capacity) return ncclInvalidArgument;
  memcpy(out, p->type == CSTR ? (void *)text : (void *)&number, (size_t)size);
  return ncclSuccess;
}

/* ---- the calls ---- */

ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key) {
  ENTER(ncclParamBind);
  if (!out || !key) return ncclInvalidArgument;
  struct ncclParamHandle *found = find(key);
  if (found) *out = found;
  return found ? ncclSuccess : ncclInvalidArgument;
}

static ncclResult_t typed(ncclParamHandle_t h, enum type type, void *out) {
  int length;
  if (!h || !out) return ncclInvalidArgument;
  return h->type == type ? raw(h, out, sizes[type], &length) : ncclInvalidArgument;
}

ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t *out) {
  ENTER(ncclParamGetI8);
  return typed(h, I8, out);
}

ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t *out) {
  ENTER(ncclParamGetI16);
  return typed(h, I16, out);
}

ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t *out) {
  ENTER(ncclParamGetI32);
  return typed(h, I32, out);
}

ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t *out) {
  ENTER(ncclParamGetI64);
  return typed(h, I64, out);
}

ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t *out) {
  ENTER(ncclParamGetU8);
  return typed(h, U8, out);
}

ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t *out) {
  ENTER(ncclParamGetU16);
  return typed(h, U16, out);
}

ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t *out) {
  ENTER(ncclParamGetU32);
  return typed(h, U32, out);
}

ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t *out) {
  ENTER(ncclParamGetU64);
  return typed(h, U64, out);
}

ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out) {
  ENTER(ncclParamGetStr);
  static _Thread_local char text[TEXT_BYTES];
  if (!h || !out || h->type != CSTR) return ncclInvalidArgument;
  text_of(h, text);
  *out = text;
  return ncclSuccess;
}

ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len) {
  ENTER(ncclParamGet);
  return h ? raw(h, out, maxLen, len) : ncclInvalidArgument;
}

ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *valueLen) {
  ENTER(ncclParamGetParameter);
  static _Thread_local char text[TEXT_BYTES];
  if (!key || !value || !valueLen) return ncclInvalidArgument;
  struct ncclParamHandle *found = find(key);
  *value = NULL;
  *valueLen = 0;
  if (!found) return ncclInvalidArgument;
  text_of(found, text);
  *value = text;
  *valueLen = (int)strlen(text);
  return ncclSuccess;
}

static bool listed(const struct ncclParamHandle *p) {
  const char *all = variable("NCCL_PARAM_DUMP_ALL");
  return p->published || (all && atoi(all) != 0);
}

ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *tableLen) {
  ENTER(ncclParamGetAllParameterKeys);
  static _Thread_local const char *keys[COUNT];
  if (!table || !tableLen) return ncclInvalidArgument;
  int count = 0;
  for (size_t i = 0; i < COUNT; i++)
    if (listed(&registry[i])) keys[count++] = registry[i].key;
  *table = keys;
  *tableLen = count;
  return ncclSuccess;
}

void ncclParamDumpAll(void) {
  int forced;
  char text[TEXT_BYTES];
  nccl4j_standin_enter(&site_ncclParamDumpAll, &forced);
  printf("=== nccl4j stand-in: parameters ===\n");
  for (size_t i = 0; i < COUNT; i++) {
    if (!listed(&registry[i])) continue;
    text_of(&registry[i], text);
    printf("%s = %s\n", registry[i].key, text);
  }
}
