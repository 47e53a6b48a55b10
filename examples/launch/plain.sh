#!/usr/bin/env bash
# Starts one process of a program for each rank, on this host, without a launcher.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: plain.sh [--keep-survivors] RANKS PROGRAM [ARGUMENTS]

Starts RANKS processes of PROGRAM on this host, each with RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE. The ranks
exchange ids in a new directory. If one fails, the others are killed, and the exit status is that of the first that
failed. With --keep-survivors the others go on, and the exit status is that of one that failed.
USAGE
}

case "${1-}" in
  -h | --help) usage; exit ;;
esac
keep_survivors=
if [[ ${1-} == --keep-survivors ]]; then
  keep_survivors=1
  shift
fi
if (($# < 2)) || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then usage >&2; exit 2; fi
export WORLD_SIZE=$1 LOCAL_WORLD_SIZE=$1
shift

directory=$(mktemp -d)
export NCCL4J_RENDEZVOUS=file:$directory
ranks=()
# Only those that still run: the number of one that has ended may be another process's by now.
trap 'kill $(jobs -pr) 2>/dev/null || true; wait; rm -rf "$directory"' EXIT

for ((rank = 0; rank < WORLD_SIZE; rank++)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  ranks+=($!)
done
if [[ $keep_survivors ]]; then
  failure=0
  for rank in "${ranks[@]}"; do wait "$rank" || failure=$?; done
  exit "$failure"
fi
for ((ended = 0; ended < WORLD_SIZE; ended++)); do wait -n; done
