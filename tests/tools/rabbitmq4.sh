#!/usr/bin/env bash
# Unpacks RabbitMQ 4 with its Erlang and its C library into a folder of the tools' cache: packages of Debian trixie, whose
# signatures apt checks. It needs no root, and apt's own sources, lists and packages stay as they are.
#
#   TOOLS_CACHE   the folder is its rabbitmq4; default: slicebus/tools under the user's cache folder
set -euo pipefail

cache=${TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slicebus/tools}
root=$cache/rabbitmq4
mkdir -p "$cache"
exec 9>"$cache/rabbitmq4.lock"
flock 9
[ ! -e "$root/.ready" ] || exit 0

fail() {
  echo "no RabbitMQ 4: $1" >&2
  exit 1
}
command -v apt-get >/dev/null || fail "this is not Debian"
mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1) || true
[ -n "$mirror" ] || fail "apt has no mirror of Debian"

rm -rf "$root"
apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt"/{lists,archives}/partial
: >"$apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$apt/sources.list"
cat >"$apt/apt.conf" <<END
Dir::State "$apt"; Dir::State::lists "$apt/lists"; Dir::State::status "$apt/status";
Dir::Cache "$apt"; Dir::Cache::archives "$apt/archives";
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
Acquire::Languages "none"; APT::Sandbox::User ""; APT::Install-Recommends "false";
END
export APT_CONFIG=$apt/apt.conf
echo "unpacking RabbitMQ 4" >&2
# As nothing is installed in this state, it is what RabbitMQ needs, down to the C library.
told=$(apt-get update -qq 2>&1 && apt-get install --download-only -qq -y rabbitmq-server 2>&1) || fail "$told"
for package in "$apt"/archives/{rabbitmq-server,erlang-,lib}*.deb; do
  dpkg-deb --extract "$package" "$root"
done

# Erlang's programs are started by the loader that they were linked for: the machine's C library may be older.
erlang=$root/usr/lib/erlang
[ -d "$erlang" ] || fail "there is no Erlang in what was unpacked"
loader=$(find "$root/usr/lib" -name 'ld-linux*.so.*' -print -quit)
find "$erlang" -type f -perm -u+x | while read -r program; do
  [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || continue
  mv "$program" "$program.elf"
  printf '#!/bin/sh\nexec %q --argv0 "$0" --library-path %q %q "$@"\n' "$loader" "${loader%/*}" "$program.elf" >"$program"
  chmod +x "$program"
done
sed -i "s#=/usr/lib/erlang\$#=$erlang#" "$erlang"/bin/erl "$erlang"/erts-*/bin/erl
# Nor is the configuration of the machine's own broker read.
sed -i "s#^SYS_PREFIX=.*#SYS_PREFIX=$root#" "$root"/usr/lib/rabbitmq/lib/*/sbin/rabbitmq-defaults
"$erlang/bin/erl" -noshell -eval 'ok = crypto:start(), halt().' || fail "its Erlang does not run here"
touch "$root/.ready"
