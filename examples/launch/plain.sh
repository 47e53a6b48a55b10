#!/usr/bin/env bash
# Starts one process of a program for each rank, on this host, without a launcher.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: plain.sh RANKS PROGRAM [ARGUMENTS]

Starts RANKS processes of PROGRAM on this host, each with RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE. The ranks
exchange ids in a new directory. If one fails, the others are killed; the exit status is that of the first that failed.
USAGE
}

case "${1-}" in
  -h | --help) usage; exit ;;
esac
if (($# < 2)) || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then usage >&2; exit 2; fi
export WORLD_SIZE=$1 LOCAL_WORLD_SIZE=$1
shift

directory=$(mktemp -d)
export NCCL4J_RENDEZVOUS=file:$directory
ranks=()
trap 'kill "${ranks[@]}" 2>/dev/null || true; wait; rm -rf "$directory"' EXIT

for ((rank = 0; rank < WORLD_SIZE; rank++)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  ranks+=($!)
done
for ((ended = 0; ended < WORLD_SIZE; ended++)); do wait -n; done
