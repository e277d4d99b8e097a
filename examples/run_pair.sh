#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_pair.sh SERVER URI CLIENT [ARGUMENT...]: starts SERVER on URI, runs CLIENT against the endpoint it prints.
# Exit status: the client's.
set -eu
server=$1 uri=$2 client=$3
shift 3
folder=$(mktemp -d)
mkfifo "$folder/stop"
"$server" "$uri" <"$folder/stop" >"$folder/output" &
server_id=$!
exec 3>"$folder/stop"
trap 'kill $server_id 2>/dev/null || true; rm -rf "$folder"' EXIT
tries=0
while ! grep -q '^serving ' "$folder/output"; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ] || ! kill -0 $server_id; then
        echo "the server did not start on $uri" >&2
        exit 1
    fi
    sleep 0.1
done
endpoint=$(sed -n 's/^serving \([^;]*\).*/\1/p' "$folder/output")
options=${uri#"${uri%%\?*}"}
status=0
timeout 60 "$client" "$endpoint$options" "$@" || status=$?
# The Enter key ends some servers, a signal the others.
echo >&3
tries=0
while kill -0 $server_id 2>/dev/null && [ $tries -lt 10 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
kill $server_id 2>/dev/null || true
wait $server_id || { echo "the server ended with status $?" >&2; exit 1; }
exit $status
