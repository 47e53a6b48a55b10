#!/usr/bin/env bash
# Starts a program once for each rank, on this host, with nothing but a shell.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: plain.sh RANKS PROGRAM [ARGUMENTS]

Starts PROGRAM so many times at once on this host, each with RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE. The ranks
meet in a directory of this run alone. When one fails, the others are ended; the status is the one of the first that failed.
USAGE
}

case "${1-}" in
  -h | --help) usage; exit ;;
esac
if (($# < 2)) || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then usage >&2; exit 2; fi
export WORLD_SIZE=$1 LOCAL_WORLD_SIZE=$1
shift

meeting=$(mktemp -d)
export NCCL4J_RENDEZVOUS=file:$meeting
ranks=()
trap 'kill "${ranks[@]}" 2>/dev/null || true; wait; rm -rf "$meeting"' EXIT

for ((rank = 0; rank < WORLD_SIZE; rank++)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  ranks+=($!)
done
for ((ended = 0; ended < WORLD_SIZE; ended++)); do wait -n; done
