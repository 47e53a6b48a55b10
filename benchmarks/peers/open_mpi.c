/*
 * MPI_Allreduce between processes of one machine. Open MPI's parameters select the algorithm.
 *
 *   mpirun -n RANKS open_mpi MODE... SIZE...
 */
#include "measure.h"

#include <mpi.h>

static void all_reduce(void *self, float *send, float *recv, size_t count) {
  (void)self;
  if (MPI_Allreduce(send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS) die("MPI_Allreduce failed");
}

static double max_over_ranks(void *self, double value) {
  (void)self;
  double max;
  if (MPI_Allreduce(&value, &max, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) != MPI_SUCCESS) die("MPI_Allreduce failed");
  return max;
}

int main(int count, char **given) {
  MPI_Init(&count, &given);
  measured peer = {.all_reduce = all_reduce, .max_over_ranks = max_over_ranks};
  MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &peer.ranks);
  measure(&peer, count - 1, given + 1);
  MPI_Finalize();
  return 0;
}
