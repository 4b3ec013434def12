#!/usr/bin/env bash
# Unpacks prometheus and promtool, of Debian's package prometheus, into the binaries of the tools' cache. Nothing is
# installed. apt checks the package by its lists; where these lack it, only root can update them.
#
#   TOOLS_CACHE   default: slicebus/tools under the user's cache folder
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slicebus/tools}
mkdir -p "$cache/bin"
exec 9>"$cache/prometheus.lock"
flock 9
[ ! -x "$cache/bin/prometheus" ] || [ ! -x "$cache/bin/promtool" ] || exit 0

fail() {
  echo "no Prometheus: $1" >&2
  exit 1
}
command -v apt-get >/dev/null || fail "this is not Debian"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo "unpacking Prometheus" >&2
download() { # as this user, whose folder it is
  apt-get -qq -o APT::Sandbox::User= download prometheus 2>&1
}
told=$(download) || { [ "$(id -u)" = 0 ] && "$here/apt.sh" 2>/dev/null && told=$(download); } || fail "${told##*$'\n'}"
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool ./usr/bin/prometheus
for name in promtool prometheus; do
  "usr/bin/$name" --version >/dev/null 2>&1 || fail "$name does not run here"
  mv "usr/bin/$name" "$cache/bin/$name.partial"
  mv "$cache/bin/$name.partial" "$cache/bin/$name"
done
