/* The native methods of CCalls.java: calls of the library from C and through JNI. */
#include <jni.h>
#include <nccl.h>

#define ARGUMENTS (void *)send, (void *)recv, (size_t)count, type, op, (ncclComm_t)comm, (cudaStream_t)stream

JNIEXPORT jint JNICALL Java_io_nccl4j_benchmarks_CCalls_allReduce(JNIEnv *env, jclass class, jlong send,
    jlong recv, jlong count, jint type, jint op, jlong comm, jlong stream) {
  (void)env, (void)class;
  return ncclAllReduce(ARGUMENTS);
}

JNIEXPORT jint JNICALL Java_io_nccl4j_benchmarks_CCalls_loop(JNIEnv *env, jclass class, jint times,
    jlong send, jlong recv, jlong count, jint type, jint op, jlong comm, jlong stream) {
  (void)env, (void)class;
  int failed = 0;
  for (jint i = 0; i < times; i++) failed |= ncclAllReduce(ARGUMENTS);
  return failed;
}
