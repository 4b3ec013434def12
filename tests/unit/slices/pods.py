"""Pod templates that meet a level of the Pod Security Standards, or just do not."""

from copy import deepcopy
from typing import Any

from slicebus.slices.workload.pod_security import Level

Manifest = dict[str, Any]

PLAIN: Manifest = {
    "metadata": {"annotations": {}},
    "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "initContainers": [{"name": "init", "image": "i"}],
        "restartPolicy": "Never",
    },
}
"""It has no security context: baseline, and not restricted."""
_SAFE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
HARDENED: Manifest = {
    "metadata": {"annotations": {}},
    "spec": {
        "containers": [{"name": "c", "image": "i", "securityContext": _SAFE}],
        "initContainers": [{"name": "init", "image": "i", "securityContext": _SAFE}],
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    },
}
"""It is restricted."""


def with_value(template: Manifest, path: str, value: Any) -> Manifest:
    """The template with a value at a dotted path of its spec; a number is an index. `metadata/` begins a path there."""
    changed = deepcopy(template)
    target: Any = changed["metadata"]["annotations"] if path.startswith("metadata/") else changed["spec"]
    if path.startswith("metadata/"):
        target[path.removeprefix("metadata/")] = value
        return changed
    *parents, last = path.split(".")
    for key in parents:
        target = target[int(key)] if key.isdecimal() else target.setdefault(key, {})
    if isinstance(target, list):
        target[int(last)] = value
    elif value is None:
        target.pop(last, None)
    else:
        target[last] = value
    return changed


def _volume(**source: Any) -> list[Manifest]:
    return [{"name": "v", **source}]


_BASELINE: list[tuple[str, Any]] = [
    ("hostNetwork", True),
    ("hostPID", True),
    ("hostIPC", True),
    ("hostNetwork", False),
    ("hostUsers", False),
    ("shareProcessNamespace", True),
    ("volumes", _volume(hostPath={"path": "/"})),
    ("volumes", _volume(hostPath={"path": "/data", "type": "Directory"})),
    ("securityContext.windowsOptions.hostProcess", True),
    ("metadata/container.apparmor.security.beta.kubernetes.io/c", "unconfined"),
    ("metadata/container.apparmor.security.beta.kubernetes.io/c", "localhost/mine"),
    ("metadata/container.apparmor.security.beta.kubernetes.io/c", "runtime/default"),
    ("securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
    ("securityContext.sysctls", [{"name": "net.ipv4.tcp_rmem", "value": "1 2 3"}]),
    ("securityContext.sysctls", [{"name": "net.ipv4.ip_local_reserved_ports", "value": "1"}]),
    ("securityContext.sysctls", [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "1"}]),
    ("securityContext.seLinuxOptions", {"type": "spc_t"}),
    ("securityContext.seLinuxOptions", {"type": "container_t"}),
    ("securityContext.seLinuxOptions", {"type": "container_engine_t"}),
    ("securityContext.seLinuxOptions", {"user": "system_u"}),
    ("securityContext.seLinuxOptions", {"role": "system_r"}),
    ("securityContext.seLinuxOptions", {"level": "s0:c1,c2"}),
    ("securityContext.seccompProfile", {"type": "Unconfined"}),
    ("securityContext.seccompProfile", {"type": "Localhost", "localhostProfile": "p"}),
    ("securityContext.appArmorProfile", {"type": "Unconfined"}),
    ("securityContext.appArmorProfile", {"type": "RuntimeDefault"}),
    ("securityContext.appArmorProfile", {"type": "Localhost", "localhostProfile": "p"}),
    ("securityContext.supplementalGroups", [0]),
    ("securityContext.fsGroup", 0),
    ("automountServiceAccountToken", True),
]
_OF_A_CONTAINER: list[tuple[str, Any]] = [
    ("securityContext.privileged", True),
    ("securityContext.privileged", False),
    ("securityContext.capabilities.add", ["NET_ADMIN"]),
    ("securityContext.capabilities.add", ["SYS_ADMIN", "CHOWN"]),
    ("securityContext.capabilities.add", ["IPC_LOCK"]),
    ("securityContext.capabilities.add", ["ALL"]),
    ("securityContext.capabilities.add", ["CHOWN", "SETUID", "MKNOD"]),
    ("securityContext.capabilities.add", ["NET_BIND_SERVICE"]),
    ("securityContext.capabilities.add", []),
    ("ports", [{"containerPort": 80, "hostPort": 80}]),
    ("ports", [{"containerPort": 80}]),
    ("securityContext.procMount", "Default"),
    ("securityContext.procMount", "Unmasked"),
    ("securityContext.seLinuxOptions", {"type": "spc_t"}),
    ("securityContext.seLinuxOptions", {"type": "container_kvm_t", "user": "u"}),
    ("securityContext.seccompProfile", {"type": "Unconfined"}),
    ("securityContext.seccompProfile", {"type": "RuntimeDefault"}),
    ("securityContext.appArmorProfile", {"type": "Unconfined"}),
    ("securityContext.windowsOptions.hostProcess", True),
]
_OF_A_MAIN_CONTAINER: list[tuple[str, Any]] = [
    ("livenessProbe", {"httpGet": {"port": 80, "host": "169.254.169.254"}}),
    ("readinessProbe", {"tcpSocket": {"port": 80, "host": "127.0.0.1"}}),
    ("startupProbe", {"tcpSocket": {"port": 80}}),
    ("lifecycle", {"postStart": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}),
    ("lifecycle", {"preStop": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}}),
    ("lifecycle", {"preStop": {"httpGet": {"port": 80}}}),
]
_VOLUMES: list[tuple[str, Any]] = [
    ("volumes", _volume(emptyDir={})),
    ("volumes", _volume(configMap={"name": "x"})),
    ("volumes", _volume(secret={"secretName": "x"})),
    ("volumes", _volume(persistentVolumeClaim={"claimName": "x"})),
    ("volumes", _volume(projected={"sources": []})),
    ("volumes", _volume(downwardAPI={"items": []})),
    ("volumes", _volume(csi={"driver": "d"})),
    ("volumes", _volume(nfs={"server": "s", "path": "/"})),
    ("volumes", _volume(iscsi={"targetPortal": "t", "iqn": "iqn.2001-04.com.example:x", "lun": 0})),
    ("volumes", _volume(flexVolume={"driver": "d/d"})),
    ("volumes", _volume(image={"reference": "r"})),
    ("volumes", [*_volume(emptyDir={}), {"name": "n", "nfs": {"server": "s", "path": "/"}}]),
    (
        "volumes",
        _volume(
            ephemeral={
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            }
        ),
    ),
]
_RESTRICTED: list[tuple[str, Any]] = [
    ("securityContext.runAsNonRoot", None),
    ("securityContext.runAsNonRoot", False),
    ("securityContext.runAsUser", 0),
    ("securityContext.runAsUser", 1000),
    ("securityContext.seccompProfile", None),
    ("os", {"name": "linux"}),
]
_RESTRICTED_OF_A_CONTAINER: list[tuple[str, Any]] = [
    ("securityContext.allowPrivilegeEscalation", None),
    ("securityContext.allowPrivilegeEscalation", True),
    ("securityContext.capabilities", None),
    ("securityContext.capabilities", {"drop": ["NET_RAW"]}),
    ("securityContext.capabilities", {"drop": ["ALL", "NET_RAW"], "add": ["NET_BIND_SERVICE"]}),
    ("securityContext.capabilities", {"drop": ["ALL"], "add": ["CHOWN"]}),
    ("securityContext.runAsNonRoot", False),
    ("securityContext.runAsNonRoot", True),
    ("securityContext.runAsUser", 0),
    ("securityContext.runAsUser", 1),
    ("securityContext", None),
]


def corpus() -> dict[str, Manifest]:
    """Templates that differ from one that is restricted, or from a plain one, in one field; by what they have there."""
    found = {"plain": PLAIN, "hardened": HARDENED}
    for name, base in (("plain", PLAIN), ("hardened", HARDENED)):
        single = [*_BASELINE, *_VOLUMES, *_RESTRICTED]
        single += [(f"containers.0.{path}", value) for path, value in _OF_A_MAIN_CONTAINER]
        for sort in ("containers", "initContainers"):
            single += [(f"{sort}.0.{path}", value) for path, value in (*_OF_A_CONTAINER, *_RESTRICTED_OF_A_CONTAINER)]
        for path, value in single:
            found[f"{name}, {path}={value!r}"] = with_value(base, path, value)
    for path in ("runAsNonRoot", "seccompProfile"):
        bare = with_value(HARDENED, f"securityContext.{path}", None)
        value = HARDENED["spec"]["securityContext"][path]
        for sort in ("containers", "initContainers"):
            bare = with_value(bare, f"{sort}.0.securityContext.{path}", value)
            found[f"hardened, only {sort} has {path}"] = bare
    windows = with_value(with_value(PLAIN, "os", {"name": "windows"}), "securityContext", {"runAsNonRoot": True})
    found["windows"] = windows
    found["windows, host process"] = with_value(
        with_value(windows, "hostNetwork", True), "securityContext.windowsOptions.hostProcess", True
    )
    return found


def own_users(level: Level) -> dict[str, Manifest]:
    """Templates with users of their own, for which newer API servers take back some checks of a level."""
    if level is Level.BASELINE:
        base = with_value(PLAIN, "hostUsers", False)
        return {"procMount": with_value(base, "containers.0.securityContext.procMount", "Unmasked")}
    base = with_value(HARDENED, "hostUsers", False)
    return {
        "runAsNonRoot": with_value(base, "securityContext.runAsNonRoot", None),
        "runAsUser": with_value(base, "securityContext.runAsUser", 0),
    }
