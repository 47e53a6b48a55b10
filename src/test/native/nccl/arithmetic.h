/* Arithmetic of the twelve types and five operators, with the results that NCCL's kernels have on a GPU. The kernels of
 * the emulation have it, too. */
#ifndef NCCL4J_STANDIN_ARITHMETIC_H
#define NCCL4J_STANDIN_ARITHMETIC_H

#include <nccl.h>
#include <stddef.h>
#include <stdint.h>

/* Those of NCCL's device functions. */
enum operator { MIN_MAX, PRE_MUL_SUM, PROD, SUM, SUM_POST_DIV };

size_t type_bytes(ncclDataType_t type);

/* values[i] = values[i] op others[i] */
void arithmetic_reduce(enum operator operator, ncclDataType_t type, uint64_t argument, void *values, const void *others,
                       size_t count);
/* Multiplies each value by the operator's argument, before the sum of PRE_MUL_SUM. */
void arithmetic_multiply(ncclDataType_t type, uint64_t argument, void *values, size_t count);
/* Divides each value by half the operator's argument, after the sum of SUM_POST_DIV; an odd one says that they are
 * signed. */
void arithmetic_divide(ncclDataType_t type, uint64_t argument, void *values, size_t count);
/* Converts floating-point values to another such type, to nearest even. */
void arithmetic_convert(ncclDataType_t from_type, const void *from, ncclDataType_t to_type, void *to, size_t count);

#endif
