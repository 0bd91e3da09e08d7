#!/usr/bin/env bash
# Compact the tables of a list, one after the other: for cron, or by hand. README.md beside it says how to install it.
#
#   REGELATE_URL=https://... trigger-compaction.sh tables.txt
#
# Each line of the list: NAMESPACE.TABLE [TENANT] (the tenant is `default` unless given). Empty lines and lines that begin with # are skipped.
#   REGELATE_URL     the base URL of the API                             (default http://localhost:8080)
#   REGELATE_TOKEN   a bearer token, where the API asks for one
#   REGELATE_TRIES   how often a table is tried when the answer says that it may help   (default 3)
#   REGELATE_WAIT    seconds before the second try, twice as many before the third ...  (default 30)
#
# Prints one line per table. Ends with 1 when a table failed, after all others were done.
set -uo pipefail

list=${1:?"usage: trigger-compaction.sh TABLES_FILE"}
url=${REGELATE_URL:-http://localhost:8080}
tries=${REGELATE_TRIES:-3}
wait=${REGELATE_WAIT:-30}
# Two starts on one day are one compaction: the second finds what the first has committed.
today=$(date -u +%Y-%m-%d)
failed=0

[[ -r $list ]] || { echo "cannot read $list" >&2; exit 2; }

field() { # field NAME: the value of a field on the top level of the answer, or of its error
  sed -n "s/.*\"$1\": *\"\{0,1\}\([A-Za-z0-9_]*\).*/\1/p" <<< "$answer" | head -n 1
}

compact() { # compact TABLE TENANT: one try; sets `answer`
  local body header=()
  body="{\"operation\": \"COMPACT\", \"namespace\": \"${1%.*}\", \"table\": \"${1##*.}\""
  body+=", \"tenant_id\": \"$2\", \"idempotency_key\": \"nightly-$today-$1\"}"
  [[ -n ${REGELATE_TOKEN:-} ]] && header=(--header @<(printf 'Authorization: Bearer %s\n' "$REGELATE_TOKEN"))
  answer=$(curl --silent --show-error --max-time 900 --header 'Content-Type: application/json' \
    ${header[@]+"${header[@]}"} --data "$body" "$url/database" 2>&1) || answer="{\"retryable\": true, \"code\": \"NO_ANSWER\"}"
}

while read -r table tenant _ || [[ -n $table ]]; do
  [[ -z $table || $table == \#* ]] && continue
  pause=$wait
  for ((try = 1; try <= tries; try++)); do
    compact "$table" "${tenant:-default}"
    [[ $(field success) == true || $(field retryable) != true ]] && break
    ((try < tries)) && { sleep "$pause"; pause=$((pause * 2)); }
  done
  if [[ $(field success) == true ]]; then
    echo "$table: $(field status), $(field files_before) -> $(field files_after) files"
  else
    echo "$table: FAILED, $(field code)" >&2
    failed=1
  fi
done < "$list"
exit "$failed"
