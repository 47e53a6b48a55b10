/* Transfers between a block and its peers through NCCL's connections. Internal to this directory. */
#ifndef NCCL4J_STANDIN_PRIMITIVES_H
#define NCCL4J_STANDIN_PRIMITIVES_H

#include "launch.h"

enum buffer { NOWHERE, INPUT, OUTPUT };

/* One direction of a connection. The receiver of the data advances `head`, the sender advances `tail`; both count
 * steps, of which each uses one slot of the buffer. */
struct link {
  char *connection;     /* NCCL's structure */
  char *buffer, *slots; /* slots: for a proxy, NULL without */
  uint64_t *tail, *head, step;
  size_t step_bytes;
  bool sends;
  /* With a registered buffer: the sender writes to the receiver's, or the receiver reads from the sender's. */
  bool writes, reads;
  char *direct;
  int peer;
};

/* Where the data of one operation goes. Offsets and counts are in elements. */
struct transfer {
  bool receive, send;
  enum buffer from, to; /* the operands of this rank; NOWHERE for none */
  ptrdiff_t from_offset, to_offset, count;
  bool finish;                      /* the result is final */
  bool direct_receive, direct_send; /* may use the other rank's buffer, if it is registered */
};

/* What the parties of one operation share. */
struct primitives {
  struct block *block;
  struct fiber *self;
  struct function function;
  uint64_t argument;
  size_t element;
  int slices, steps; /* per chunk, per slice */
  ptrdiff_t step_elements;
  bool p2p;
  char *input, *output;
  int receive_count, send_count;
  struct link receives[TREE_CHILDREN], sends[TREE_CHILDREN];
};

/* How an operation uses its connections. */
struct primitives_options {
  const void *input;
  void *output;
  uint64_t argument;                /* of the operator */
  int slices, steps;                /* of the simple protocol */
  int connection;                   /* index: 0 or 1 */
  const void *collective, *p2p; /* the work, where its registered buffers may be used */
  size_t step_bytes;                /* of the simple protocol; 0: the communicator's */
};

/* The peers end with -1, or with the maximum: one or TREE_CHILDREN. */
void primitives_open(struct primitives *p, struct block *block, struct fiber *self, const struct function *function,
                     const int *receive_from, int receive_max, const int *send_to, int send_max,
                     const struct primitives_options *options);
void primitives_run(struct primitives *p, const struct transfer *transfer);
void primitives_close(struct primitives *p);

/* For the protocols: */

/* Opens a connection to or from a peer by its index: 0 or 1. */
void link_open(struct primitives *p, struct link *link, int peer, bool sends, int index);
/* Saves the connection's step for the next operation. */
void link_close(const struct primitives *p, const struct link *link);
/* Waits until the peer has filled the next `steps` slots, or freed them. */
void link_wait(struct primitives *p, struct link *link, int steps);
/* Tells the peer that this rank has filled or freed the slots before the link's step. */
void link_post(struct link *link);
/* Tells the proxy, if there is one, the bytes in the next slot. */
void link_size(const struct primitives *p, const struct link *link, size_t bytes);
/* Returns the address of one of this rank's operands, NULL for NOWHERE. Fails the kernel if a device may not access
 * `count` elements there; an operand that only the peer copies is not checked, and not to be used. */
char *operand(struct primitives *p, enum buffer buffer, ptrdiff_t offset, ptrdiff_t count);
/* Reduces the sources to `count` elements, which go to all destinations. `prepare`: the first source is an operand. */
void combine(struct primitives *p, char *const *sources, int source_count, char *const *destinations,
             int destination_count, ptrdiff_t count, bool prepare, bool finish);
/* Exchanges the addresses of registered buffers with the peers. */
void exchange_buffers(struct primitives *p, const struct primitives_options *options);

void simple_run(struct primitives *p, const struct transfer *transfer);
void ll_run(struct primitives *p, const struct transfer *transfer);

#endif
