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

/* NCCL4J_STANDIN_BUS_IDS=0000:1b:00.0,... names the first devices; others keep their own bus ids. */
static bool read_bus_ids(const char *text) {
  char *copy = strdup(text), *rest = copy;
  bool valid = true;
  int device = 0;
  for (char *one; valid && (one = strsep(&rest, ",")); device++)
    valid = device < MAX_DEVICES && nccl4j_standin_bus_parse(one, &buses[device]);
  free(copy);
  return valid;
}

__attribute__((constructor)) static void read_environment(void) {
  for (int device = 0; device < MAX_DEVICES; device++)
    buses[device] = (struct nccl4j_standin_bus_id){DOMAIN, (unsigned)device + 1, 0};
  const char *text = getenv("NCCL4J_STANDIN_BUS_IDS");
  if (text && !read_bus_ids(text))
    nccl4j_standin_refuse_variable("NCCL4J_STANDIN_BUS_IDS", "at most 64 bus ids such as 0000:1b:00.0, with commas");
  nvlinks = (int)nccl4j_standin_number("NCCL4J_STANDIN_NVLINKS", DEFAULT_NVLINKS, 0, DEFAULT_NVLINKS);
}

struct nccl4j_standin_bus_id nccl4j_standin_bus_id(int device) { return buses[device]; }

bool nccl4j_standin_bus_parse(const char *text, struct nccl4j_standin_bus_id *id) {
  unsigned function = 0;
  int end = 0;
  int found = sscanf(text, "%x:%x:%x%n.%x%n", &id->domain, &id->bus, &id->slot, &end, &function, &end);
  return found >= 3 && text[end] == 0 && id->domain <= 0xffff && id->bus <= 0xff && id->slot <= 0x1f && function == 0;
}

int nccl4j_standin_bus_device(const struct nccl4j_standin_bus_id *id) {
  for (int device = 0; device < nccl4j_standin_device_count(); device++)
    if (buses[device].domain == id->domain && buses[device].bus == id->bus && buses[device].slot == id->slot)
      return device;
  return -1;
}

int nccl4j_standin_nvlinks(void) { return nvlinks; }
