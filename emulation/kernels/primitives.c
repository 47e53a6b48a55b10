/* What the protocols have in common: connections, their steps, and the reduction of what arrives. */
#include "primitives.h"

#include "standin.h"

#include <string.h>

#define NETWORK_DEVICE_UNPACK 1

/* ---- connections ---- */

struct step_state {
  const struct link *link;
  int steps;
};

static bool has_steps(void *state) {
  const struct step_state *waiting = state;
  const struct link *link = waiting->link;
  uint64_t *counter = link->sends ? link->head : link->tail;
  return __atomic_load_n(counter, __ATOMIC_ACQUIRE) + (link->sends ? STEPS : 0) >=
         link->step + (uint64_t)waiting->steps;
}

void link_wait(struct primitives *p, struct link *link, int steps) {
  struct step_state state = {link, steps};
  fiber_wait(p->self, has_steps, &state);
}

void link_post(struct link *link) {
  __atomic_store_n(link->sends ? link->tail : link->head, link->step, __ATOMIC_RELEASE);
}

void link_size(const struct primitives *p, const struct link *link, size_t bytes) {
  if (link->slots == NULL) return;
  const struct release *r = p->block->launch->release;
  int64_t *size = address_of(link->slots + link->step % STEPS * r->slot_bytes, r->slot.size);
  __atomic_store_n(size, (int64_t)bytes, __ATOMIC_RELAXED);
}

void link_open(struct primitives *p, struct link *link, int peer, bool sends, int index) {
  const struct launch *launch = p->block->launch;
  const struct release *r = launch->release;
  if (peer < 0 || peer >= launch->ranks) launch_refuse(launch, "it has a peer that is not in the communicator");
  char **peers = get_pointer(p->block->channel, r->channel.peers);
  char *connection = peers[peer] + (sends ? 0 : r->receive_offset) + (size_t)index * r->connection_bytes;
  if (!sends && get_int(connection, r->connection.network_device) == NETWORK_DEVICE_UNPACK)
    launch_refuse(launch, "it receives through a network's device code");
  *link = (struct link){
      .connection = connection,
      .buffer = get_pointer(connection, element(r->connection.buffer, p->function.protocol)),
      .slots = get_pointer(connection, r->connection.slots),
      .tail = get_pointer(connection, r->connection.tail),
      .head = get_pointer(connection, r->connection.head),
      .step = get(connection, r->connection.step),
      .step_bytes = p->function.protocol == SIMPLE
                      ? (size_t)get_int(connection, r->connection.step_bytes)
                      : get(launch->communicator, element(r->communicator.buffer_bytes, p->function.protocol)) / STEPS,
      .sends = sends,
      .peer = peer,
  };
  if (p->function.protocol != SIMPLE) return;
  uint64_t chunk = (uint64_t)(p->slices * p->steps);
  link->step = (link->step + chunk - 1) / chunk * chunk;
  if (!sends) link_post(link); /* returns the slots that the rounding skipped */
}

void primitives_open(struct primitives *p, struct block *block, struct fiber *self, const struct function *function,
                     const int *receive_from, int receive_max, const int *send_to, int send_max,
                     const struct primitives_options *options) {
  const struct release *r = block->launch->release;
  *p = (struct primitives){
      .block = block,
      .self = self,
      .function = *function,
      .argument = options->argument,
      .element = type_bytes(function->type),
      .slices = options->slices,
      .steps = options->steps,
      .p2p = options->p2p != NULL,
      .input = (char *)(uintptr_t)options->input,
      .output = options->output,
  };
  size_t step_bytes = options->step_bytes;
  if (step_bytes == 0)
    step_bytes = get(block->launch->communicator, element(r->communicator.buffer_bytes, SIMPLE)) / STEPS;
  p->step_elements = (ptrdiff_t)(step_bytes / p->element);
  while (p->receive_count < receive_max && receive_from[p->receive_count] != -1) {
    link_open(p, &p->receives[p->receive_count], receive_from[p->receive_count], false, options->connection);
    p->receive_count++;
  }
  while (p->send_count < send_max && send_to[p->send_count] != -1) {
    link_open(p, &p->sends[p->send_count], send_to[p->send_count], true, options->connection);
    p->send_count++;
  }
  if (function->protocol == SIMPLE) exchange_buffers(p, options);
}

void link_close(const struct primitives *p, const struct link *link) {
  *(uint64_t *)address_of(link->connection, p->block->launch->release->connection.step) = link->step;
}

static bool was_read(void *state) {
  const struct link *link = state;
  return __atomic_load_n(link->head, __ATOMIC_ACQUIRE) >= __atomic_load_n(link->tail, __ATOMIC_ACQUIRE);
}

void primitives_close(struct primitives *p) {
  for (int i = 0; i < p->receive_count; i++) link_close(p, &p->receives[i]);
  for (int i = 0; i < p->send_count; i++) link_close(p, &p->sends[i]);
  /* The receiver of a send reads from the operand, which this rank's user may overwrite after the kernel. */
  for (int i = 0; i < p->send_count; i++)
    if (p->p2p && p->sends[i].reads) fiber_wait(p->self, was_read, &p->sends[i]);
}

void primitives_run(struct primitives *p, const struct transfer *transfer) {
  struct transfer t = *transfer;
  if (t.count < 0) t.count = 0;
  if (p->function.protocol == SIMPLE) simple_run(p, &t);
  else ll_run(p, &t);
}

/* ---- data ---- */

/* Whether the operand is a registered buffer of a send or receive that the peer copies. Its address is then the peer's,
 * which this process may not have. */
static bool is_for_peer(const struct primitives *p, enum buffer buffer) {
  if (!p->p2p) return false;
  return buffer == INPUT ? p->send_count > 0 && p->sends[0].reads : p->receive_count > 0 && p->receives[0].writes;
}

char *operand(struct primitives *p, enum buffer buffer, ptrdiff_t offset, ptrdiff_t count) {
  if (buffer == NOWHERE) return NULL;
  char *address = (buffer == INPUT ? p->input : p->output) + offset * (ptrdiff_t)p->element;
  if (is_for_peer(p, buffer)) return address;
  size_t bytes = count > 0 ? (size_t)count * p->element : 0;
  int device = p->block->launch->device;
  bool allowed = buffer == INPUT ? nccl4j_standin_usable(address, bytes, device)
                                 : nccl4j_standin_writable(address, bytes, device);
  if (!allowed) {
    p->block->launch->failed = true;
    fiber_stop(p->self);
  }
  return address;
}

void combine(struct primitives *p, char *const *sources, int source_count, char *const *destinations,
             int destination_count, ptrdiff_t count, bool prepare, bool finish) {
  struct launch *launch = p->block->launch;
  const struct function *function = &p->function;
  prepare = prepare && function->operator == PRE_MUL_SUM;
  finish = finish && function->operator == SUM_POST_DIV;
  if (source_count == 1 && !prepare && !finish) {
    for (int i = 0; i < destination_count; i++)
      if (destinations[i] != sources[0]) memmove(destinations[i], sources[0], (size_t)count * p->element);
    return;
  }
  ptrdiff_t most = (ptrdiff_t)(SCRATCH_BYTES / p->element);
  for (ptrdiff_t done = 0; done < count; done += most) {
    size_t some = (size_t)(count - done < most ? count - done : most);
    size_t place = (size_t)done * p->element;
    memcpy(launch->values, sources[0] + place, some * p->element);
    if (prepare) arithmetic_multiply(function->type, p->argument, launch->values, some);
    for (int i = 1; i < source_count; i++)
      arithmetic_reduce(function->operator, function->type, p->argument, launch->values, sources[i] + place, some);
    if (finish) arithmetic_divide(function->type, p->argument, launch->values, some);
    for (int i = 0; i < destination_count; i++) memcpy(destinations[i] + place, launch->values, some * p->element);
  }
}
