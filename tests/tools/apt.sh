#!/usr/bin/env bash
# Installs Debian packages as root: `apt.sh PACKAGE...`. Waits up to ten minutes while somebody else uses apt.
set -euo pipefail
export LC_ALL=C

ends=$((SECONDS + 600))
# apt waits for dpkg's lock (DPkg::Lock::Timeout), and fails at once where another update holds that of the lists.
until told=$(apt-get update -qq 2>&1); do
  if [[ $told != *"Could not get lock"* ]] || ((SECONDS > ends)); then
    echo "$told" >&2
    exit 1
  fi
  sleep 0.2
done
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600 "$@" >/dev/null
