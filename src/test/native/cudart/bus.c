/*
 * The PCI bus ids and NVLinks of the emulated machine, which NCCL reads through CUDA and NVML to find the topology.
 */
#include "cudart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NCCL looks for every bus id in /sys. No machine has this domain, so it finds nothing there. */
#define DOMAIN 0xe4c0
#define DEFAULT_NVLINKS 18

static struct nccl4j_standin_bus_id buses[MAX_DEVICES];
static int nvlinks;

static void fail(const char *variable, const char *text) {
  fprintf(stderr, "nccl4j stand-in: %s: '%s' is not valid\n", variable, text);
  abort();
}

/* NCCL4J_STANDIN_BUS_IDS=0000:1b:00.0,... names the first devices; others keep their own bus ids. */
__attribute__((constructor)) static void read_environment(void) {
  for (int device = 0; device < MAX_DEVICES; device++)
    buses[device] = (struct nccl4j_standin_bus_id){DOMAIN, (unsigned)device + 1, 0};
  const char *text = getenv("NCCL4J_STANDIN_BUS_IDS");
  if (text) {
    char *copy = strdup(text), *rest = copy;
    int device = 0;
    for (char *one; (one = strsep(&rest, ",")); device++)
      if (device == MAX_DEVICES || !nccl4j_standin_bus_parse(one, &buses[device])) fail("NCCL4J_STANDIN_BUS_IDS", text);
    free(copy);
  }
  const char *links = getenv("NCCL4J_STANDIN_NVLINKS");
  nvlinks = links ? atoi(links) : DEFAULT_NVLINKS;
  if (nvlinks < 0 || nvlinks > DEFAULT_NVLINKS) fail("NCCL4J_STANDIN_NVLINKS", links);
}

struct nccl4j_standin_bus_id nccl4j_standin_bus_id(int device) { return buses[device]; }

bool nccl4j_standin_bus_parse(const char *text, struct nccl4j_standin_bus_id *id) {
  unsigned function = 0;
  return sscanf(text, "%x:%x:%x.%x", &id->domain, &id->bus, &id->slot, &function) >= 3;
}

int nccl4j_standin_bus_device(const struct nccl4j_standin_bus_id *id) {
  for (int device = 0; device < nccl4j_standin_device_count(); device++)
    if (buses[device].domain == id->domain && buses[device].bus == id->bus && buses[device].slot == id->slot)
      return device;
  return -1;
}

int nccl4j_standin_nvlinks(void) { return nvlinks; }
