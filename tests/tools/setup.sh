#!/usr/bin/env bash
# Gets the servers that the integration tests run: RabbitMQ from Debian's packages, and RabbitMQ 4 beside an older one, the
# Kubernetes control plane and Helm built by Go, PostgreSQL, Prometheus, and Chromium. Says in one line what is missing and cannot be had; the
# tests that need it are skipped then, and fail in CI. Without RabbitMQ 4 they run on the older one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ ! -x /usr/lib/rabbitmq/bin/rabbitmq-server ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing rabbitmq-server" >&2
    # The package starts a broker of its own where services can start; the tests start theirs with private folders.
    RUNLEVEL=1 "$here/apt.sh" rabbitmq-server
  else
    echo "no RabbitMQ: install Debian's rabbitmq-server to run the tests that need a broker" >&2
  fi
fi

compgen -G '/usr/lib/rabbitmq/lib/rabbitmq_server-4*' >/dev/null || "$here/rabbitmq4.sh" || true

if ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing postgresql" >&2
    # As for RabbitMQ: the tests start one of their own.
    RUNLEVEL=1 "$here/apt.sh" postgresql || echo "no PostgreSQL: Debian's package postgresql cannot be had" >&2
  else
    echo "no PostgreSQL: install Debian's postgresql to run the tests of the ledger on it" >&2
  fi
fi

"$here/prometheus.sh" || true

if ! command -v chromium >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing chromium" >&2
    "$here/apt.sh" chromium fonts-dejavu-core
  else
    echo "no Chromium: install Debian's chromium to run the tests of the view in a browser" >&2
  fi
fi

if command -v go >/dev/null; then
  "$here/build.sh" >/dev/null
else
  echo "no Go: install it to build the Kubernetes control plane and run the tests that need it" >&2
fi
