/**
 * A client of NCCL's RAS service (reliability, availability, serviceability), which knows the
 * communicators of a whole job: which ranks do not answer, and how often each rank has called each
 * collective.
 *
 * {@snippet :
 * RasStatus status = RasClient.of(address).status(Duration.ofSeconds(10)); // localhost:28028
 * List<RasStatus.MissingRank> lost =
 *     status.communicators().stream()
 *         .flatMap(communicator -> communicator.missingRanks().stream())
 *         .toList();
 * }
 *
 * <p>Every process with a communicator of NCCL 2.24 or later runs the service. This package needs
 * neither NCCL nor CUDA, so a program that monitors a job may use it on any machine that can
 * connect to the service.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html">RAS
 *     in NVIDIA's guide</a>
 */
package io.nccl4j.ras;
