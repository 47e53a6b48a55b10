/*
 * The numbering of NCCL's device functions. NCCL numbers them in the alphabetical order of operation, operator, type,
 * algorithm and protocol, and leaves out combinations that are never used and signed integers, for which the functions
 * of unsigned ones serve. The enumerations of function.h are in that order, too. Releases before 2.29 have no
 * AllGatherV.
 */
#include "function.h"

#include <pthread.h>

#define MAX_FUNCTIONS 1024

/* The types in the alphabetical order of NCCL's names for them: bf16, f16, ..., i32, i64, u32, u64, u8. */
static const ncclDataType_t types[] = {ncclBfloat16,   ncclFloat16,    ncclFloat32, ncclFloat64,
                                       ncclFloat8e4m3, ncclFloat8e5m2, ncclInt32,   ncclInt64,
                                       ncclUint32,     ncclUint64,     ncclUint8};

static const char *const operations[] = {"AllGather", "AllGatherV",    "AllReduce", "Broadcast",
                                         "Reduce",    "ReduceScatter", "SendRecv"};
static const char *const operators[] = {"MinMax", "PreMulSum", "Prod", "Sum", "SumPostDiv"};
static const char *const algorithms[] = {"COLLNET_CHAIN", "COLLNET_DIRECT", "NVLS", "NVLS_TREE", "PAT", "RING", "TREE"};
static const char *const protocols[] = {"LL", "LL128", "SIMPLE"};

static struct function functions[MAX_FUNCTIONS];
static int count;

static bool is_signed(ncclDataType_t type) { return type == ncclInt32 || type == ncclInt64; }

static bool is_integer(ncclDataType_t type) { return type <= ncclUint64; }

static bool has_algorithm(enum operation operation, enum algorithm algorithm) {
  switch (operation) {
    case ALL_REDUCE: return algorithm != PAT;
    case ALL_GATHER:
    case REDUCE_SCATTER:
      return algorithm == RING || algorithm == COLLNET_DIRECT || algorithm == NVLS || algorithm == PAT;
    default: return algorithm == RING;
  }
}

/* Whether NVLS reduces this type with this operator: what the multicast hardware can do. */
static bool multicast_reduces(enum operator operator, ncclDataType_t type) {
  switch (type) {
    case ncclInt32:
    case ncclUint32:
    case ncclInt64:
    case ncclUint64:
    case ncclFloat16:
    case ncclBfloat16: return operator == SUM || operator == MIN_MAX;
    case ncclFloat32:
    case ncclFloat64: return operator == SUM;
    default: return false;
  }
}

static bool exists(const struct function *f, bool reduces) {
  if (!has_algorithm(f->operation, f->algorithm)) return false;
  if (f->protocol != SIMPLE && f->algorithm != RING && f->algorithm != TREE) return false;
  if (!reduces) return true;
  bool multicast = f->algorithm == NVLS || f->algorithm == NVLS_TREE;
  if (f->operator == SUM_POST_DIV && !is_integer(f->type)) return false;
  if (multicast && !multicast_reduces(f->operator, f->type)) return false;
  /* Only the multicast hardware compares signed integers as such. */
  return !is_signed(f->type) || (multicast && f->operator == MIN_MAX);
}

static void add_all(struct function f, bool reduces) {
  for (int algorithm = COLLNET_CHAIN; algorithm <= TREE; algorithm++) {
    for (int protocol = LL; protocol <= SIMPLE; protocol++) {
      f.algorithm = (enum algorithm)algorithm;
      f.protocol = (enum protocol)protocol;
      if (exists(&f, reduces)) functions[count++] = f;
    }
  }
}

static void number(void) {
  for (int operation = ALL_GATHER; operation < SEND_RECV; operation++) {
    struct function f = {.operation = (enum operation)operation, .operator = SUM, .type = ncclInt8};
    if (operation != ALL_REDUCE && operation != REDUCE && operation != REDUCE_SCATTER) {
      add_all(f, false);
      continue;
    }
    for (int operator = MIN_MAX; operator <= SUM_POST_DIV; operator++) {
      for (size_t type = 0; type < sizeof types / sizeof *types; type++) {
        f.operator = (enum operator)operator;
        f.type = types[type];
        add_all(f, true);
      }
    }
  }
  functions[count++] = (struct function){
      .operation = SEND_RECV, .operator = SUM, .type = ncclInt8, .algorithm = RING, .protocol = SIMPLE};
}

int function_count(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, number);
  return count;
}

bool function_find(int number, bool broadcasts, struct function *function) {
  for (int i = 0, all = function_count(); i < all; i++) {
    if (functions[i].operation == ALL_GATHER_V && !broadcasts) continue;
    *function = functions[i];
    if (number-- == 0) return true;
  }
  return false;
}

const char *operation_name(enum operation operation) { return operations[operation]; }
const char *operator_name(enum operator operator) { return operators[operator]; }
const char *algorithm_name(enum algorithm algorithm) { return algorithms[algorithm]; }
const char *protocol_name(enum protocol protocol) { return protocols[protocol]; }
