/* The data types of NCCL and their arithmetic. */
#ifndef NCCL4J_STANDIN_TYPES_H
#define NCCL4J_STANDIN_TYPES_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

enum reduction_kind { REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN };
size_t type_size(ncclDataType_t type);
bool type_valid(ncclDataType_t type);
bool type_is_integer(ncclDataType_t type);
/* accumulator[i] = accumulator[i] (op) operand[i], rounded to the type. */
void type_fold(ncclDataType_t type, enum reduction_kind kind, void *accumulator, const void *operand, size_t count);
/* to[i] = from[i] * scalar, rounded to the type. */
void type_scale(ncclDataType_t type, void *to, const void *from, const void *scalar, size_t count);
/* Truncating; integers only. */
void type_divide(ncclDataType_t type, void *values, int divisor, size_t count);
/* The type's value nearest to 1/n; floats only. */
void type_reciprocal(ncclDataType_t type, int n, void *scalar);

#endif
