/**
 * NCCL plugins written in Java: {@link io.nccl4j.plugin.NcclEnvironment} answers NCCL's questions
 * for its environment variables, a {@link io.nccl4j.plugin.Profiler} receives what NCCL does, and a
 * {@link io.nccl4j.plugin.Tuner} changes what it chooses. No C compiler is needed.
 *
 * <p>NCCL loads a plugin from the file that an environment variable names, and reads these
 * variables once. So plugins are installed before NCCL is loaded, that is, before the first call of
 * {@link io.nccl4j.Backend#nccl()} or {@link io.nccl4j.Backend#auto()}, and remain installed until
 * the process ends. The class loader of nccl4j is then never collected.
 */
package io.nccl4j.plugin;
