/*
 * The simple protocol: chunks are transferred in slices of whole steps, through the slots of a connection's buffer or,
 * where the buffers of the user are registered, without a copy in between.
 */
#include "primitives.h"

#define MODE_OFFSET 1 /* the proxy sets where in the buffer a slot is */
#define PEER_WRITES 1
#define PEER_READS 2

/* ---- registered buffers ---- */

static bool is_empty(void *slot) { return __atomic_load_n((void **)slot, __ATOMIC_ACQUIRE) == NULL; }

static bool is_full(void *slot) { return !is_empty(slot); }

static bool provides(const struct link *link) { return link->sends ? link->reads : link->writes; }

static bool accepts(const struct link *link) { return link->sends ? link->writes : link->reads; }

/* Returns the address under which the peer sees this rank's buffer. */
static void *address_for(const struct primitives *p, const struct link *link, const void *work) {
  if (p->p2p) return link->direct;
  const struct launch *launch = p->block->launch;
  const struct release *r = launch->release;
  const int *local_ranks = get_pointer(launch->communicator, r->communicator.local_ranks);
  int index = get_int(launch->communicator, r->communicator.across_cliques) ? link->peer : local_ranks[link->peer];
  const uintptr_t *bases = get_pointer(work, r->collective.remote_receives);
  return (void *)(bases[index] + get(work, r->collective.receive_offset));
}

static void exchange(struct primitives *p, struct link *link, const void *work, bool provide) {
  const struct release *r = p->block->launch->release;
  void **slot = get_pointer(link->connection, r->connection.exchange);
  if (slot == NULL) launch_refuse(p->block->launch, "it uses multicast buffers");
  if (provide) {
    /* The peer of a send reads the input, that of a collective the output, where this rank puts its data first. */
    link->direct = link->sends && p->p2p ? p->input : p->output;
    fiber_wait(p->self, is_empty, slot);
    __atomic_store_n(slot, address_for(p, link, work), __ATOMIC_RELEASE);
  } else {
    fiber_wait(p->self, is_full, slot);
    link->direct = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    __atomic_store_n(slot, NULL, __ATOMIC_RELEASE);
  }
}

static void choose_direct(const struct primitives *p, struct link *link, const struct primitives_options *options) {
  const struct release *r = p->block->launch->release;
  int flags = get_int(link->connection, r->connection.flags);
  if (options->p2p != NULL) {
    struct field registered = link->sends ? r->p2p.send_registered : r->p2p.receive_registered;
    struct field network = link->sends ? r->p2p.send_network : r->p2p.receive_network;
    if (get_int(options->p2p, network)) launch_refuse(p->block->launch, "a network uses the user's buffers");
    if (!get_int(options->p2p, registered) || !(flags & (PEER_READS | PEER_WRITES))) return;
    link->writes = (flags & PEER_WRITES) != 0;
  } else if (options->collective != NULL) {
    if (!get_int(options->collective, r->collective.registered) || !(flags & (PEER_READS | PEER_WRITES))) return;
    link->writes = !(get_int(options->collective, r->collective.direct) & PEER_READS);
  } else {
    return;
  }
  link->reads = !link->writes;
}

/* First all addresses are given and then all are taken, so that no cycle of ranks waits for each other. */
void exchange_buffers(struct primitives *p, const struct primitives_options *options) {
  for (int i = 0; i < p->receive_count; i++) choose_direct(p, &p->receives[i], options);
  for (int i = 0; i < p->send_count; i++) choose_direct(p, &p->sends[i], options);
  for (int provide = 1; provide >= 0; provide--) {
    for (int i = 0; i < p->receive_count; i++)
      if (provide ? provides(&p->receives[i]) : accepts(&p->receives[i]))
        exchange(p, &p->receives[i], options->collective, provide);
    for (int i = 0; i < p->send_count; i++)
      if (provide ? provides(&p->sends[i]) : accepts(&p->sends[i]))
        exchange(p, &p->sends[i], options->collective, provide);
  }
}

/* ---- slices ---- */

static char *slot_of(const struct primitives *p, const struct link *link) {
  if (link->slots != NULL) {
    const struct release *r = p->block->launch->release;
    const char *slot = link->slots + link->step % STEPS * r->slot_bytes;
    int *offset = address_of(slot, r->slot.offset);
    if (get_int(slot, r->slot.mode) == MODE_OFFSET) return link->buffer + __atomic_load_n(offset, __ATOMIC_RELAXED);
  }
  return link->buffer + link->step % STEPS * link->step_bytes;
}

/* Returns where a slice is read or written; NULL if the receiver reads it itself. */
static char *place_of(const struct primitives *p, const struct link *link, const struct transfer *t, ptrdiff_t offset) {
  if (!(link->sends ? t->direct_send : t->direct_receive)) return slot_of(p, link);
  ptrdiff_t element = (ptrdiff_t)p->element;
  if (link->writes) return link->direct + (t->to_offset + offset) * element;
  if (link->reads) return link->sends ? NULL : link->direct + (t->from_offset + offset) * element;
  return slot_of(p, link);
}

/* Where the peer has written to this rank's output, the source is the destination, and combine() copies nothing. */
static void run_slice(struct primitives *p, const struct transfer *t, ptrdiff_t offset, ptrdiff_t count) {
  char *sources[1 + TREE_CHILDREN], *destinations[1 + TREE_CHILDREN];
  int source_count = 0, destination_count = 0;
  if (t->from != NOWHERE) sources[source_count++] = operand(p, t->from, t->from_offset + offset, count);
  if (t->to != NOWHERE) destinations[destination_count++] = operand(p, t->to, t->to_offset + offset, count);
  for (int i = 0; t->receive && i < p->receive_count; i++) {
    link_wait(p, &p->receives[i], p->steps);
    sources[source_count++] = place_of(p, &p->receives[i], t, offset);
  }
  for (int i = 0; t->send && i < p->send_count; i++) {
    link_wait(p, &p->sends[i], p->steps);
    link_size(p, &p->sends[i], (size_t)count * p->element);
    char *place = place_of(p, &p->sends[i], t, offset);
    if (place != NULL) destinations[destination_count++] = place;
  }
  if (count > 0 && source_count > 0 && destination_count > 0)
    combine(p, sources, source_count, destinations, destination_count, count, t->from == INPUT, t->finish);
  for (int i = 0; t->receive && i < p->receive_count; i++) {
    p->receives[i].step += (uint64_t)p->steps;
    link_post(&p->receives[i]);
  }
  for (int i = 0; t->send && i < p->send_count; i++) {
    p->sends[i].step += (uint64_t)p->steps;
    link_post(&p->sends[i]);
  }
}

void simple_run(struct primitives *p, const struct transfer *t) {
  ptrdiff_t grain = 16 * p->slices;
  ptrdiff_t slice = (t->count + grain - 1) / grain * 16, least = p->step_elements * p->steps / 32, offset = 0;
  if (slice < least) slice = least;
  for (int i = 0; i < p->slices; i++) {
    if (slice > t->count - offset) slice = t->count - offset;
    run_slice(p, t, offset, slice);
    offset += slice;
  }
}
