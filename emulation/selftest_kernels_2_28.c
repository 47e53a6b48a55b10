/* The tests of selftest_kernels.c with the structures of NCCL 2.28.9. */
#define RELEASE 22809
#include "selftest_kernels.c"
