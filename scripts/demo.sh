#!/usr/bin/env bash
# One real model, four processes, one streamed answer. Run it as `make demo`, which makes the environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prompt="${1:-Write a Python function that returns the n-th Fibonacci number.}"
scratch="$(mktemp -d)"
up=""

stop() {
  if [[ -n "$up" ]] && kill -0 "$up" 2>/dev/null; then
    kill -INT "$up"
    wait "$up" || true
  fi
  rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 130' INT TERM

outrider models fetch smollm2

# A shell starts background jobs with SIGINT ignored; job control keeps it, so that the stop is a clean one.
set -m
outrider up --models smollm2 --ready-file "$scratch/ready" >"$scratch/up.log" 2>&1 &
up=$!
set +m

echo "starting gateway, scheduler, draft and validator ..."
for ((second = 0; second < ${DEMO_START_TIMEOUT_S:-300}; second++)); do
  [[ -e "$scratch/ready" ]] && break
  if ! kill -0 "$up" 2>/dev/null; then
    echo "'outrider up' ended early:" >&2
    cat "$scratch/up.log" >&2
    exit 1
  fi
  sleep 1
done
if [[ ! -e "$scratch/ready" ]]; then
  echo "not ready in time; the last lines of 'outrider up':" >&2
  tail -n 40 "$scratch/up.log" >&2
  exit 1
fi

cat "$scratch/up.log"
outrider generate "$prompt" --max-tokens 160
