/*
 * The table of NCCL's releases. NCCL gives no access to these structures, which differ between releases; a launch is
 * checked against the table (launch.c), and a release that is not in it is refused.
 */
#include "release.h"

#include "../cudart/cudart.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define WHOLE(offset, bytes) {offset, bytes, 0, 0}
#define BITS(offset, bytes, shift, width) {offset, bytes, shift, width}
/* clang-format on */

static const struct release releases[] = {{
    .version = 23007,

    .arguments_bytes = 32,
    .arguments =
        {
            .communicator = WHOLE(0, 8),
            .channels = WHOLE(8, 8),
            .storage = WHOLE(16, 1),
            .mask = WHOLE(20, 4),
            .works = WHOLE(24, 8),
        },
    .batch_bytes = 16,
    .batch =
        {
            .jump = BITS(0, 4, 0, 14),
            .extends = BITS(0, 4, 14, 1),
            .type = BITS(0, 4, 15, 2),
            .function = BITS(0, 4, 17, 15),
            .offset = WHOLE(4, 4),
            .set = WHOLE(8, 8),
        },

    .communicator =
        {
            .rank = WHOLE(0, 4),
            .ranks = WHOLE(4, 4),
            .nodes = WHOLE(12, 4),
            .buffer_bytes = WHOLE(16, 4),
            .message_chunk = WHOLE(28, 4),
            .across_cliques = WHOLE(32, 1),
            .all_nvlink = WHOLE(36, 4),
            .abort = WHOLE(48, 8),
            .channels = WHOLE(56, 8),
            .local_ranks = WHOLE(64, 8),
            .started = WHOLE(72, 8),
            .completed = WHOLE(80, 8),
        },
    .channels_offset = 96,
    .channel_bytes = 368,
    .channel =
        {
            .peers = WHOLE(0, 8),
            .previous = WHOLE(8, 4),
            .next = WHOLE(12, 4),
            .ring = WHOLE(16, 8),
            .ring_index = WHOLE(32, 4),
            .tree_up = WHOLE(44, 4),
            .tree_down = WHOLE(48, 4),
            .works_done = WHOLE(360, 8),
        },
    .profiler_bytes = 1024,
    .profiler_events = 64,

    .connection_bytes = 152,
    .receive_offset = 304,
    .connection =
        {
            .buffer = WHOLE(0, 8),
            .tail = WHOLE(48, 8),
            .head = WHOLE(56, 8),
            .flags = WHOLE(64, 4),
            .step_bytes = WHOLE(72, 4),
            .exchange = WHOLE(80, 8),
            .slots = WHOLE(96, 8),
            .step = WHOLE(104, 8),
            .network_device = WHOLE(120, 4),
        },
    .slot_bytes = 24,
    .slot = {.mode = WHOLE(0, 4), .offset = WHOLE(4, 4), .size = WHOLE(8, 8)},

    .collective_bytes = 128,
    .registered_bytes = 320,
    .message_bytes = 48,
    .broadcast_bytes = 48,
    .collective =
        {
            .first = BITS(0, 4, 0, 8),
            .last = BITS(0, 4, 8, 8),
            .warps = BITS(0, 4, 16, 8),
            .argument_is_address = BITS(0, 4, 24, 1),
            .registered = BITS(0, 4, 25, 1),
            .network_registered = BITS(0, 4, 26, 1),
            .direct = BITS(0, 4, 28, 2),
            .profiled = BITS(0, 4, 31, 1),
            .root = WHOLE(4, 4),
            .receive = WHOLE(24, 8),
            .send = WHOLE(32, 8),
            .receive_offset = WHOLE(56, 8),
            .remote_receives = WHOLE(72, 8),
            .count = {WHOLE(80, 8), WHOLE(88, 8), WHOLE(96, 8)},
            .grains = {BITS(104, 8, 0, 21), BITS(104, 8, 21, 21), BITS(104, 8, 42, 21)},
            .argument = WHOLE(112, 8),
        },
    .message =
        {
            .send = WHOLE(0, 8),
            .receive = WHOLE(8, 8),
            .send_bytes = WHOLE(16, 8),
            .receive_bytes = WHOLE(24, 8),
            .send_rank = WHOLE(32, 4),
            .receive_rank = WHOLE(36, 4),
            .channels = WHOLE(40, 1),
            .base = WHOLE(41, 1),
            .send_channels = WHOLE(42, 1),
            .receive_channels = WHOLE(43, 1),
            .send_chunk = WHOLE(44, 1),
            .receive_chunk = WHOLE(45, 1),
            .send_ll = BITS(46, 1, 0, 1),
            .receive_ll = BITS(46, 1, 1, 1),
            .send_network = BITS(46, 1, 2, 1),
            .receive_network = BITS(46, 1, 3, 1),
            .send_registered = BITS(46, 1, 4, 1),
            .receive_registered = BITS(46, 1, 5, 1),
            .profiled = BITS(46, 1, 6, 1),
        },
    .broadcast =
        {
            .depth = WHOLE(0, 4),
            .chunk = WHOLE(4, 4),
            .send = WHOLE(8, 8),
            .receive = WHOLE(16, 8),
            .bytes = WHOLE(24, 8),
            .done = WHOLE(32, 8),
        },

    .symmetric_bytes = 304,
    .range_bytes = 4,
    .symmetric_work_bytes = 64,
    .symmetric =
        {
            .ranks = WHOLE(12, 4),
            .local_rank = WHOLE(20, 4),
            .local_ranks = WHOLE(24, 4),
            .base = WHOLE(56, 8),
            .stride = WHOLE(72, 4),
            .barrier = WHOLE(128, 4),
            .barriers = WHOLE(132, 4),
            .abort = WHOLE(208, 8),
            .lines = WHOLE(240, 4),
            .slots = WHOLE(244, 4),
            .blocks = WHOLE(288, 4),
        },
    .range = {.last = WHOLE(0, 2), .fraction = WHOLE(2, 2)},
    .symmetric_work =
        {
            .argument = WHOLE(0, 8),
            .count = WHOLE(8, 8),
            .input_window = WHOLE(16, 8),
            .output_window = WHOLE(24, 8),
            .input_offset = WHOLE(32, 8),
            .output_offset = WHOLE(40, 8),
            .first_block = WHOLE(52, 2),
            .block_count = WHOLE(54, 2),
        },
    .window = {.base = WHOLE(8, 8), .stride = WHOLE(24, 4)},
}};

/* The names of the objects of this process. */
struct objects {
  char *names[1024];
  int count;
};

static int add_name(struct dl_phdr_info *object, size_t size, void *list) {
  (void)size;
  struct objects *objects = list;
  char *name = strdup(object->dlpi_name);
  if (name != NULL) objects->names[objects->count++] = name;
  return objects->count == sizeof objects->names / sizeof *objects->names;
}

/* Returns the version of the object, or of one of its dependencies, if it is NCCL, and 0 if not. */
static int version_of(const char *name) {
  void *handle = dlopen(name[0] ? name : NULL, RTLD_NOLOAD | RTLD_LAZY);
  if (handle == NULL) return 0;
  int version = 0;
  int (*get_version)(int *) = (int (*)(int *))(uintptr_t)dlsym(handle, "ncclGetVersion");
  if (get_version != NULL && get_version(&version) != 0) version = 0;
  dlclose(handle);
  return version;
}

static const struct release *found;

/* NCCL is looked for in all objects, since a Java program loads it with a handle of its own. dlopen must not be called
 * while the loader iterates. */
static void find(void) {
  static struct objects objects;
  dl_iterate_phdr(add_name, &objects);
  int version = 0;
  for (int i = 0; i < objects.count; i++) {
    if (version == 0) version = version_of(objects.names[i]);
    free(objects.names[i]);
  }
  /* Without NCCL this is a test that builds a release's structures, the newest one's. */
  for (size_t i = 0; i < sizeof releases / sizeof *releases; i++)
    if (version == 0 || releases[i].version == version) found = &releases[i];
  if (found == NULL) not_emulated("a kernel of NCCL release %d", version);
}

const struct release *release_find(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find);
  return found;
}
