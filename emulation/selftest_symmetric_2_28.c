/* The tests of selftest_symmetric.c with the structures of NCCL 2.28.9. */
#define RELEASE 22809
#include "selftest_symmetric.c"
