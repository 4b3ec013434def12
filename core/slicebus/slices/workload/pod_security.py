"""Checks pod templates against the Pod Security Standards of Kubernetes.

Each check has the name that Pod Security Admission gives it, and is as strict as its newest version. A test
compares them with a real API server. One thing is left out: newer servers allow more to a pod with `hostUsers: false`.
Older ones ignore that field, and start the pod with the users of its node.
Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

Manifest = dict[str, Any]
_VALUE_LENGTH = 100
"""Most characters of a value that are shown."""


class Level(StrEnum):
    """What a pod may do to its node, from everything to little."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


class SecurityRule(NamedTuple):
    """One rule of the standards."""

    name: str
    level: Level
    """The least level that has it."""
    find: Callable[[Manifest], Iterator[str]]
    """What in a pod template is not allowed: fields, with their values."""


class FieldValue(NamedTuple):
    """A value in a pod template."""

    path: str
    value: Any

    def __str__(self) -> str:
        return f"{self.path}={self.value!r:.{_VALUE_LENGTH}}"


def violations(template: Manifest, level: Level) -> list[str]:
    """The fields of a pod template that a level forbids, as `hostPathVolumes: spec.volumes[0].hostPath={...}`; empty
    where it meets the level. A value of the wrong type is forbidden too."""
    applied = [check for check in CHECKS if _LEVELS.index(check.level) <= _LEVELS.index(level)]
    return [f"{check.name}: {field}" for check in applied for field in check.find(template)]


def _values(value: Any, path: str, at: str = "spec") -> Iterator[FieldValue]:
    """The values at a path such as `volumes[*].hostPath`; nothing where a field is missing or null.

    `containers` stands for containers of all sorts. Where a value on the way has the wrong type, it is that value.
    """
    name, _, rest = path.partition(".")
    is_list = name.endswith("[*]")
    for key in _SORTS if name == "containers[*]" else (name.removesuffix("[*]"),):
        if not isinstance(value, dict):
            yield FieldValue(at, value)
            return
        below = value.get(key)
        if below is None:
            continue
        if is_list and not isinstance(below, list):
            yield FieldValue(f"{at}.{key}", below)
            continue
        entries = (
            [(f"{at}.{key}[{index}]", entry) for index, entry in enumerate(below)]
            if is_list
            else [(f"{at}.{key}", below)]
        )
        for where, entry in entries:
            yield from _values(entry, rest, where) if rest else [FieldValue(where, entry)]


_SORTS = ("containers", "initContainers", "ephemeralContainers")
_LEVELS = list(Level)


def _fields(allowed: Callable[[Any], bool], *paths: str) -> Callable[[Manifest], Iterator[str]]:
    """Finds values at these paths that are not allowed."""

    def find(template: Manifest) -> Iterator[str]:
        fields = (field for path in paths for field in _values(template.get("spec"), path))
        return (str(field) for field in fields if not allowed(field.value))

    return find


def _both(field: str) -> tuple[str, str]:
    """The paths of a security context's field, of the pod and of its containers."""
    return f"securityContext.{field}", f"containers[*].securityContext.{field}"


def _in(*values: str) -> Callable[[Any], bool]:
    return lambda value: value in values


def _is_unset(value: Any) -> bool:
    return not value


def _app_armor_annotations(template: Manifest) -> Iterator[str]:
    annotations = _value_at(template, "metadata.annotations")
    for name, value in annotations.items() if isinstance(annotations, dict) else ():
        allowed = value in ("", "runtime/default") or str(value).startswith("localhost/")
        if name.startswith(_APP_ARMOR) and not allowed:
            yield f"metadata.annotations.{name}={value!r}"


_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"


def _containers(template: Manifest) -> Iterator[FieldValue]:
    return _values(template.get("spec"), "containers[*]")


def _value_at(value: Any, path: str) -> Any:
    """The value at a path; None where there is none."""
    return next((entry.value for entry in _values(value, path)), None)


def _is_windows(template: Manifest) -> bool:
    return bool(_value_at(template.get("spec"), "os.name") == "windows")


def _unless_windows(find: Callable[[Manifest], Iterator[str]]) -> Callable[[Manifest], Iterator[str]]:
    return lambda template: iter(()) if _is_windows(template) else find(template)


def _every_container(allowed: Callable[[Any], bool], path: str) -> Callable[[Manifest], Iterator[str]]:
    """Finds containers whose value at a path, or its absence, is not allowed."""

    def find(template: Manifest) -> Iterator[str]:
        for container in _containers(template):
            value = _value_at(container.value, path)
            if not allowed(value):
                yield str(FieldValue(f"{container.path}.{path}", value))

    return find


def _every_container_or_the_pod(allowed: Callable[[Any], bool], field: str) -> Callable[[Manifest], Iterator[str]]:
    """Finds values of a security context's field that are not allowed, and containers that have none while the pod has
    none either."""
    present = _fields(allowed, *_both(field))

    def find(template: Manifest) -> Iterator[str]:
        yield from present(template)
        if _value_at(template.get("spec"), f"securityContext.{field}") is None:
            path = f"securityContext.{field}"
            lacking = (container for container in _containers(template) if _value_at(container.value, path) is None)
            yield from (str(FieldValue(f"{container.path}.{path}", None)) for container in lacking)

    return find


def _volume_types(template: Manifest) -> Iterator[str]:
    for volume in _values(template.get("spec"), "volumes[*]"):
        if not isinstance(volume.value, dict) or not volume.value.keys() & _VOLUMES:
            yield str(volume)


_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_PROFILES = _in("RuntimeDefault", "Localhost")
_HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
_HANDLER_HOSTS = tuple(
    f"containers[*].{handler}.{action}.host" for handler in _HANDLERS for action in ("httpGet", "tcpSocket")
)

CHECKS = (
    SecurityRule("hostNamespaces", Level.BASELINE, _fields(_is_unset, "hostNetwork", "hostPID", "hostIPC")),
    SecurityRule("privileged", Level.BASELINE, _fields(_is_unset, "containers[*].securityContext.privileged")),
    SecurityRule(
        "capabilities_baseline",
        Level.BASELINE,
        _fields(_in(*_CAPABILITIES), "containers[*].securityContext.capabilities.add[*]"),
    ),
    SecurityRule("hostPathVolumes", Level.BASELINE, _fields(lambda value: False, "volumes[*].hostPath")),
    SecurityRule("hostPorts", Level.BASELINE, _fields(_is_unset, "containers[*].ports[*].hostPort")),
    SecurityRule("hostProbesAndHostLifecycle", Level.BASELINE, _fields(_is_unset, *_HANDLER_HOSTS)),
    SecurityRule("appArmorProfile", Level.BASELINE, _fields(_PROFILES, *_both("appArmorProfile.type"))),
    SecurityRule("appArmorProfile", Level.BASELINE, _app_armor_annotations),
    SecurityRule("seLinuxOptions", Level.BASELINE, _fields(_in(*_SELINUX_TYPES), *_both("seLinuxOptions.type"))),
    SecurityRule(
        "seLinuxOptions",
        Level.BASELINE,
        _fields(_is_unset, *_both("seLinuxOptions.user"), *_both("seLinuxOptions.role")),
    ),
    SecurityRule("procMount", Level.BASELINE, _fields(_in("Default"), "containers[*].securityContext.procMount")),
    SecurityRule("seccompProfile_baseline", Level.BASELINE, _fields(_PROFILES, *_both("seccompProfile.type"))),
    SecurityRule("sysctls", Level.BASELINE, _fields(_in(*_SYSCTLS), "securityContext.sysctls[*].name")),
    SecurityRule("windowsHostProcess", Level.BASELINE, _fields(_is_unset, *_both("windowsOptions.hostProcess"))),
    SecurityRule("restrictedVolumes", Level.RESTRICTED, _volume_types),
    SecurityRule(
        "allowPrivilegeEscalation",
        Level.RESTRICTED,
        _unless_windows(
            _every_container(lambda value: value is False, "securityContext.allowPrivilegeEscalation"),
        ),
    ),
    SecurityRule(
        "runAsNonRoot",
        Level.RESTRICTED,
        _every_container_or_the_pod(lambda value: value is True, "runAsNonRoot"),
    ),
    SecurityRule("runAsUser", Level.RESTRICTED, _fields(bool, *_both("runAsUser"))),
    SecurityRule(
        "seccompProfile_restricted",
        Level.RESTRICTED,
        _unless_windows(_every_container_or_the_pod(_PROFILES, "seccompProfile.type")),
    ),
    SecurityRule(
        "capabilities_restricted",
        Level.RESTRICTED,
        _unless_windows(
            _every_container(
                lambda value: isinstance(value, list) and "ALL" in value, "securityContext.capabilities.drop"
            ),
        ),
    ),
    SecurityRule(
        "capabilities_restricted",
        Level.RESTRICTED,
        _unless_windows(
            _fields(_in("NET_BIND_SERVICE"), "containers[*].securityContext.capabilities.add[*]"),
        ),
    ),
)
"""A rule that is about several fields in different ways has several entries."""
