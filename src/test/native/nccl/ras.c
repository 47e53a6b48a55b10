/*
 * The RAS service: status in JSON, and the first lines of the status as text, in the form of NCCL 2.30.7. A thread
 * listens from the first communicator on, if NCCL4J_STANDIN_RAS is 1. The stand-in's ranks are threads of one process,
 * so there are no other processes to ask: a rank that is made to fail is reported as one that does not answer.
 */
#include "clique.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t ras_lock = PTHREAD_MUTEX_INITIALIZER; /* before a clique's lock */
static ncclComm_t ras_comms;
static bool started;

/* In the order of NCCL's own functions. */
static const char *const names[RAS_KINDS] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};

void ras_count(ncclComm_t comm, enum function function) {
  static const enum function kinds[RAS_KINDS] = {BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE};
  for (int i = 0; i < RAS_KINDS; i++)
    if (kinds[i] == function) atomic_fetch_add(&comm->ras_counts[i], 1);
}

/* ---- the hash of a communicator, as NCCL computes it ---- */

static void hash_add(uint64_t hash[2], const void *value, size_t size) {
  hash[0] ^= size;
  for (size_t at = 0; at < size; at += 8) {
    hash[0] += hash[1];
    hash[1] ^= hash[0];
    hash[0] = (hash[0] ^ hash[0] >> 31) * 0x9de62bbc8cef3ce3;
    hash[1] = (hash[1] ^ hash[1] >> 32) * 0x485cd6311b599e79;
    uint64_t word = 0;
    memcpy(&word, (const char *)value + at, size - at < 8 ? size - at : 8);
    hash[0] += word;
  }
}

static uint64_t hash_end(const uint64_t hash[2]) {
  uint64_t h = (hash[0] ^ hash[0] >> 31) * 0xbac3bd562846de6b + hash[1];
  return (h ^ h >> 32) * 0x995a187a14e7b445;
}

uint64_t ras_id_hash(const ncclUniqueId *id) {
  uint64_t hash[2] = {1, 1};
  hash_add(hash, id->internal, sizeof id->internal);
  return hash_end(hash);
}

uint64_t ras_child_hash(uint64_t parent, int number, int color) {
  uint64_t hash[2] = {1, 1};
  hash_add(hash, &parent, sizeof parent);
  hash_add(hash, &number, sizeof number);
  hash_add(hash, &color, sizeof color);
  return hash_end(hash);
}

/* ---- answers ---- */

static void print_place(FILE *to, int rank, int device) {
  fprintf(to, "{\"rank\": %d, \"host\": \"127.0.0.1\", \"pid\": %d, \"cuda_dev\": %d, \"nvml_dev\": %d, ", rank,
          (int)getpid(), device, device);
}

static void print_rank(FILE *to, ncclComm_t comm) {
  print_place(to, comm->rank, comm->device);
  fprintf(to,
          "\"status\": {\"init_state\": 0, \"async_error\": %d, \"finalize_called\": %s, \"destroy_flag\": %s, "
          "\"abort_flag\": %s}, \"collective_counts\": {",
          comm->failure, comm->finalized ? "true" : "false", comm->destroying ? "true" : "false",
          comm->revoked ? "true" : "false");
  for (int i = 0; i < RAS_KINDS; i++)
    fprintf(to, "%s\"%s\": %lu", i ? ", " : "", names[i], (unsigned long)atomic_load(&comm->ras_counts[i]));
  fprintf(to, "}}");
}

/* A rank that fails without an error is lost; one with an error reports it. */
static bool answers(const struct clique *c, int rank) {
  ncclComm_t comm = c->members[rank];
  return comm && !(comm->silent && comm->failure == ncclSuccess);
}

static void print_clique(FILE *to, struct clique *c) {
  pthread_mutex_lock(&c->lock);
  int present = 0;
  for (int r = 0; r < c->ranks; r++) present += answers(c, r);
  fprintf(to,
          "    {\"hash\": \"0x%lx\", \"secondary_hash\": \"0x1:0x1\", \"size\": %d, \"ranks_count\": %d, "
          "\"missing_ranks_count\": %d, \"ranks\": [",
          (unsigned long)c->hash, c->ranks, present, c->ranks - present);
  const char *separator = "\n      ";
  for (int r = 0; r < c->ranks; r++) {
    if (!answers(c, r)) continue;
    fputs(separator, to);
    print_rank(to, c->members[r]);
    separator = ",\n      ";
  }
  fprintf(to, "],\n     \"missing_ranks\": [");
  separator = "\n      ";
  for (int r = 0; r < c->ranks; r++) {
    if (answers(c, r)) continue;
    fputs(separator, to);
    print_place(to, r, c->members[r] ? c->members[r]->device : -1);
    fprintf(to, "\"status\": {\"unresponsive\": %s, \"considered_dead\": false}}", c->members[r] ? "true" : "false");
    separator = ",\n      ";
  }
  fprintf(to, "]}");
  pthread_mutex_unlock(&c->lock);
}

/* Whether an earlier communicator of the list is a rank of the same clique. */
static bool printed(ncclComm_t comm) {
  for (ncclComm_t earlier = ras_comms; earlier != comm; earlier = earlier->ras_next)
    if (earlier->clique == comm->clique) return true;
  return false;
}

static void print_json(FILE *to) {
  char timestamp[32];
  struct tm local;
  time_t now = time(NULL);
  strftime(timestamp, sizeof timestamp, "%F %T", localtime_r(&now, &local));
  fprintf(to,
          "{\n  \"nccl_version\": \"%d.%d.%d\",\n  \"cuda_runtime_version\": 13000,\n"
          "  \"cuda_driver_version\": 13000,\n  \"timestamp\": \"%s\",\n  \"communicators\": [",
          STANDIN_RELEASE / 10000, STANDIN_RELEASE / 100 % 100, STANDIN_RELEASE % 100, timestamp);
  const char *separator = "\n";
  pthread_mutex_lock(&ras_lock);
  for (ncclComm_t comm = ras_comms; comm; comm = comm->ras_next) {
    if (printed(comm)) continue;
    fputs(separator, to);
    print_clique(to, comm->clique);
    separator = ",\n";
  }
  pthread_mutex_unlock(&ras_lock);
  fprintf(to, "\n  ],\n  \"ras\": {\"collection_time_sec\": 0.000, \"timeouts_count\": 0}\n}\n");
}

static void print_text(FILE *to) {
  fprintf(to, "NCCL version %d.%d.%d compiled with CUDA 13.0\nCUDA runtime version 13000, driver version 13000\n\n",
          STANDIN_RELEASE / 10000, STANDIN_RELEASE / 100 % 100, STANDIN_RELEASE % 100);
  fprintf(to, "nccl4j stand-in: no further lines\n");
}

/* ---- the service ---- */

static void *serve(void *argument) {
  int connection = (int)(intptr_t)argument;
  FILE *from = fdopen(connection, "r"), *to = fdopen(dup(connection), "w");
  char line[256];
  bool json = false;
  while (fgets(line, sizeof line, from)) {
    line[strcspn(line, "\r\n")] = 0;
    if (strncmp(line, "CLIENT PROTOCOL ", 16) == 0) {
      fprintf(to, "SERVER PROTOCOL 2\n");
    } else if (strncmp(line, "TIMEOUT ", 8) == 0) {
      fprintf(to, "OK\n");
    } else if (strcmp(line, "SET FORMAT json") == 0 && STANDIN_RELEASE >= NCCL_VERSION(2, 28, 7)) {
      json = true;
      fprintf(to, "OK\n");
    } else if (strncmp(line, "MONITOR ", 8) == 0 && STANDIN_RELEASE >= NCCL_VERSION(2, 29, 2)) {
      fprintf(to, "ERROR: Invalid event group '%s'\n", line + 8);
    } else if (strcmp(line, "STATUS") == 0 || strcmp(line, "VERBOSE STATUS") == 0) {
      if (json) print_json(to);
      else print_text(to);
      break;
    } else {
      fprintf(to, "ERROR: Unknown command %s\n", line);
    }
    fflush(to);
  }
  fclose(to);
  fclose(from);
  return NULL;
}

static void *listen_forever(void *argument) {
  int listener = (int)(intptr_t)argument;
  while (true) {
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    pthread_t thread;
    if (connection < 0) continue;
    if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection) == 0) pthread_detach(thread);
    else close(connection);
  }
  return NULL;
}

/* Needs the lock. */
static void start(void) {
  const char *enabled = getenv("NCCL_RAS_ENABLE"), *address = getenv("NCCL_RAS_ADDR");
  started = true;
  if (enabled && atoi(enabled) == 0) return;
  const char *port = address ? strrchr(address, ':') : ":28028";
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port ? port + 1 : "0")),
                           .sin_addr = {htonl(INADDR_LOOPBACK)}};
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  pthread_t thread;
  if (setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
      bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 100) != 0 ||
      pthread_create(&thread, NULL, listen_forever, (void *)(intptr_t)listener) != 0) {
    perror("nccl4j stand-in: RAS cannot listen");
    abort();
  }
  pthread_detach(thread);
}

void ras_add(ncclComm_t comm) {
  pthread_mutex_lock(&ras_lock);
  if (!started && nccl4j_standin_number("NCCL4J_STANDIN_RAS", 0, 0, 1) != 0) start();
  comm->ras_next = ras_comms;
  ras_comms = comm;
  pthread_mutex_unlock(&ras_lock);
}

void ras_remove(ncclComm_t comm) {
  pthread_mutex_lock(&ras_lock);
  ncclComm_t *at = &ras_comms;
  while (*at != comm) at = &(*at)->ras_next;
  *at = comm->ras_next;
  pthread_mutex_unlock(&ras_lock);
}
