#!/usr/bin/env bash
# Builds the servers and tools that the integration tests run, each from its own go.mod beside this file, and links them
# into one folder, whose path is the last line printed. A tool is built again only when its go.mod or go.sum changes.
# Of several at once, as from two checkouts, one builds and the others wait for it.
#
#   build.sh           the servers that `make test` needs
#   build.sh peers     the operators that `make test-peers` runs slicebus beside, and their definitions
#
#   TOOLS_CACHE   where the binaries are kept; default: slicebus/tools under the user's cache folder
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slicebus/tools}
bin=$cache/bin
mkdir -p "$bin"

exec 9>"$cache/lock"
if ! flock --nonblock 9; then
  echo "waiting for another build into $cache" >&2
  flock 9
fi

store_of() { # store_of MODULE: where what is made from its go.mod and go.sum is kept
  echo "$cache/$1-$(cat "$here/$1/go.mod" "$here/$1/go.sum" | sha256sum | cut -c1-12)"
}

build() { # build MODULE LDFLAGS PACKAGE...: one binary for each package, named as the package's command
  local module=$1 ldflags=$2 package name store
  shift 2
  store=$(store_of "$module")
  for package in "$@"; do
    name=${package##*/}
    [ "$module" = etcd ] && name=etcd
    if [ ! -x "$store/$name" ]; then
      echo "building $name from tests/tools/$module/go.mod" >&2
      mkdir -p "$store"
      (cd "$here/$module" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $ldflags" -o "$store/$name.partial" "$package")
      mv "$store/$name.partial" "$store/$name"
    fi
    ln -sfn "$store/$name" "$bin/$name"
  done
}

definitions() { # definitions MODULE SOURCE FOLDER: the manifests that the Go module SOURCE has in FOLDER, as crds/MODULE
  local module=$1 source=$2 folder=$3 store
  store=$(store_of "$module")
  if [ ! -d "$store/crds" ]; then
    mkdir -p "$store/crds.partial"
    (cd "$here/$module" && go mod download "$source" && cp "$(go list -m -f '{{.Dir}}' "$source")/$folder"/*.yaml "$store/crds.partial")
    mv "$store/crds.partial" "$store/crds"
  fi
  mkdir -p "$cache/crds"
  ln -sfn "$store/crds" "$cache/crds/$module"
}

if [ "${1:-}" = peers ]; then
  build kuberay '' github.com/ray-project/kuberay/ray-operator
  definitions kuberay github.com/ray-project/kuberay/ray-operator config/crd/bases
  build kueue '-X sigs.k8s.io/kueue/pkg/version.GitVersion=v0.19.2' sigs.k8s.io/kueue/cmd/kueue
  definitions kueue sigs.k8s.io/kueue config/components/crd/bases
  echo "$bin"
  exit
fi

build etcd '' go.etcd.io/etcd/server/v3
build kwok '' sigs.k8s.io/kwok/cmd/kwok
build helm '' helm.sh/helm/v4/cmd/helm
# Without a version the API server reports v0.0.0, and refuses its own CRDs' and clients' version checks.
build kubernetes '-X k8s.io/component-base/version.gitVersion=v1.36.3' \
  k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler
echo "$bin"
