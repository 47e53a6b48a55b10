/* Arithmetic of the twelve types and five operators, with the results that NCCL's kernels have on a GPU. */
#ifndef NCCL4J_STANDIN_ARITHMETIC_H
#define NCCL4J_STANDIN_ARITHMETIC_H

#include "function.h"

#include <stddef.h>
#include <stdint.h>

#define SCRATCH_BYTES 32768

size_t type_bytes(ncclDataType_t type);

/* Whether a value of the user's is changed before it is reduced, and a result after it. */
bool arithmetic_prepares(const struct function *function);
bool arithmetic_finishes(const struct function *function);

/* Multiplies each value by the operator's argument, for PRE_MUL_SUM. */
void arithmetic_prepare(const struct function *function, uint64_t argument, void *values, size_t count);
/* values[i] = values[i] op others[i] */
void arithmetic_reduce(const struct function *function, uint64_t argument, void *values, const void *others,
                       size_t count);
/* Divides each value by the operator's argument, for SUM_POST_DIV. */
void arithmetic_finish(const struct function *function, uint64_t argument, void *values, size_t count);
/* Converts floating-point values to another such type, to nearest even. */
void arithmetic_convert(ncclDataType_t from_type, const void *from, ncclDataType_t to_type, void *to, size_t count);

#endif
