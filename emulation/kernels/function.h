/* The device functions of NCCL: what a work's function number means. */
#ifndef NCCL4J_STANDIN_FUNCTION_H
#define NCCL4J_STANDIN_FUNCTION_H

#include "nccl/arithmetic.h"

#include <stdbool.h>

enum operation { ALL_GATHER, ALL_GATHER_V, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, SEND_RECV };
enum algorithm { COLLNET_CHAIN, COLLNET_DIRECT, NVLS, NVLS_TREE, PAT, RING, TREE };
/* NCCL's own numbers: a communicator has its buffers in this order. */
enum protocol { LL, LL128, SIMPLE };

struct function {
  enum operation operation;
  enum operator operator;
  ncclDataType_t type; /* ncclInt8 where the operation only moves bytes */
  enum algorithm algorithm;
  enum protocol protocol;
};

/* Stores the function with this number; false if there is none. `broadcasts`: whether the release has ALL_GATHER_V. */
bool function_find(int number, bool broadcasts, struct function *function);

/* Number of functions, with ALL_GATHER_V. */
int function_count(void);

const char *operation_name(enum operation operation);
const char *operator_name(enum operator operator);
const char *algorithm_name(enum algorithm algorithm);
const char *protocol_name(enum protocol protocol);

#endif
