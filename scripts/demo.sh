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

outrider models fetch smollm2 >/dev/null

# A shell starts background jobs with SIGINT ignored; job control keeps it, so that the stop is a clean one.
set -m
outrider up --models smollm2 --ports auto --log-dir "$scratch/logs" --ready-file "$scratch/ready" \
  >"$scratch/up.log" 2>&1 &
up=$!
set +m

echo "starting gateway, scheduler, draft and validator (the first time takes up to a minute) ..."
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
grep 'ready in' "$scratch/up.log"

OUTRIDER_SERVER="$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["gateway"])' "$scratch/ready")"
export OUTRIDER_SERVER

ask=(outrider generate "$prompt" --temperature 0 --max-tokens 160)
printf '\n> %s\n\n' "$prompt"
"${ask[@]}" | tee "$scratch/drafted"

"${ask[@]}" --k 0 >"$scratch/plain" 2>/dev/null
if ! cmp -s "$scratch/drafted" "$scratch/plain"; then
  echo "without drafts (--k 0) the answer is another one; that must never be" >&2
  exit 1
fi
echo "asked again without drafts (--k 0): the same text, byte for byte"
