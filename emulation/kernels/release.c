/*
 * Finds the release of NCCL. NCCL gives no access to its private structures, which differ between releases: each known
 * release has a description (release_*.c), a launch is checked against it (launch.c), and any other release is refused.
 */
#include "release.h"

#include "cudart/cudart.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 2.31.0 is the state of NCCL's development branch of 13 June 2026 (2.31.0 a7, commit 86fa684d), whose structures and
 * function numbers are those of 2.30.7. A final 2.31 may differ, with the same number. */
static const struct {
  int version;
  const struct release *release;
} releases[] = {{22809, &release_2_28_9}, {23007, &release_2_30_7}, {23100, &release_2_30_7}};

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
  for (size_t i = 0; i < sizeof releases / sizeof *releases; i++)
    if (releases[i].version == version) found = releases[i].release;
  if (found == NULL) not_emulated("a kernel of NCCL release %d", version);
}

const struct release *release_find(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find);
  return found;
}
