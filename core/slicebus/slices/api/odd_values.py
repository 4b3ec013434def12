"""Finds values of Kueue's fields that a Kueue would refuse, and that slicebus' definitions or newer ones let in."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from slicebus.slices.api.quantities import parse_quantity

Problem = tuple[str, str]
"""The path of a field, and what happens instead of what its value says."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_QUOTA = "spec.resourceGroups[].flavors[].resources"
_LIMITS = ("nominalQuota", "borrowingLimit", "lendingLimit")
_WEIGHT = "spec.fairSharing.weight"
_REFUSED = "API servers refuse pods with it, as"


class _Resource(msgspec.Struct, rename="camel"):
    name: str = ""
    nominal_quota: str | float | None = None
    borrowing_limit: str | float | None = None
    lending_limit: str | float | None = None


class _Flavor(msgspec.Struct):
    name: str = ""
    resources: tuple[_Resource, ...] = ()


class _Group(msgspec.Struct, rename="camel"):
    covered_resources: tuple[str, ...] = ()
    flavors: tuple[_Flavor, ...] = ()


class _FairSharing(msgspec.Struct):
    weight: str | float | None = None


class _Quota(msgspec.Struct, rename="camel"):
    resource_groups: tuple[_Group, ...] = ()
    cohort_name: str = ""
    parent_name: str = ""
    fair_sharing: _FairSharing | None = None


class _Taint(msgspec.Struct):
    effect: str = ""


class _Toleration(msgspec.Struct, rename="camel"):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class _Flavored(msgspec.Struct, rename="camel"):
    node_taints: tuple[_Taint, ...] = ()
    tolerations: tuple[_Toleration, ...] = ()


def odd_values(kind: str, spec: object) -> Iterator[Problem]:
    """The odd values of an object of one of Kueue's kinds, by its spec. Nothing of a spec that cannot be read."""
    if kind not in _WAYS:
        return
    shape, find = _WAYS[kind]
    try:
        read: Any = msgspec.convert(spec, shape)
    except msgspec.ValidationError:
        return
    yield from find(read)


def covered_resources(spec: object) -> set[str]:
    """The resources that a ClusterQueue has quota of, by its spec; none where it cannot be read."""
    try:
        groups = msgspec.convert(spec, _Quota).resource_groups
    except msgspec.ValidationError:
        return set()
    return {resource for group in groups for resource in group.covered_resources}


def _of_quota(quota: _Quota) -> Iterator[Problem]:
    yield from _of_weight(quota)
    if never := list(_given_never(quota.resource_groups)):
        yield _QUOTA, ", ".join(never)
    borrows = bool(quota.cohort_name or quota.parent_name)
    told = [
        (name, f"{resource.name} of flavor {flavor.name}: {wrong}")
        for group in quota.resource_groups
        for flavor in group.flavors
        for resource in flavor.resources
        for name, wrong in _of_limits(resource, borrows=borrows)
    ]
    for name in _LIMITS:
        if wrong := [text for field, text in told if field == name]:
            yield f"{_QUOTA}[].{name}", ", ".join(wrong)


def _given_never(groups: Sequence[_Group]) -> Iterator[str]:
    """Quota that no job gets: of a resource that its group does not cover, that stands twice, or that lacks."""
    named = [
        (flavor.name, resource.name, resource.name in group.covered_resources)
        for group in groups
        for flavor in group.flavors
        for resource in flavor.resources
    ]
    for name, resource, is_covered in named:
        if not is_covered:
            yield f"nobody gets {resource} of flavor {name}, as coveredResources does not name it"
    times = Counter((flavor, resource) for flavor, resource, _ in named)
    for (name, resource), n in times.items():
        if n > 1:
            yield f"{resource} of flavor {name} is there twice, and the last one counts"
    for group in groups:
        for flavor in group.flavors:
            for resource in group.covered_resources:
                if (flavor.name, resource) not in times:
                    yield f"nobody gets {resource} of flavor {flavor.name}, which has no quota of it"


def _of_limits(resource: _Resource, *, borrows: bool) -> Iterator[Problem]:
    amounts = (resource.nominal_quota, resource.borrowing_limit, resource.lending_limit)
    nominal, borrowing, lending = map(_number, amounts)
    for name, number in zip(_LIMITS, (nominal, borrowing, lending), strict=True):
        if number is not None and number < 0:
            yield name, "it is less than 0, and others of the tree have so much less"
    if borrowing is not None and not borrows:
        yield "borrowingLimit", "there is no cohort to borrow from"
    if nominal is not None and lending is not None and 0 <= nominal < lending:
        yield "lendingLimit", "it is more than nominalQuota, and all of that is lent"


def _of_weight(quota: _Quota) -> Iterator[Problem]:
    number = _number(quota.fair_sharing.weight) if quota.fair_sharing else None
    if number is not None and number < 0:
        yield _WEIGHT, "it is less than 0, and counts as 0"


def _of_flavor(flavor: _Flavored) -> Iterator[Problem]:
    effects = [taint.effect for taint in flavor.node_taints if taint.effect not in ("", *_EFFECTS)]
    if effects:
        yield "spec.nodeTaints[].effect", f"no pod is kept off by {' or '.join(map(repr, effects))}"
    for toleration in flavor.tolerations:
        for name, instead in _of_toleration(toleration):
            yield f"spec.tolerations[].{name}", instead


def _of_toleration(toleration: _Toleration) -> Iterator[Problem]:
    operator, exists = toleration.operator or "Equal", toleration.operator == "Exists"
    if operator not in ("Equal", "Exists"):
        yield "operator", f"{operator!r} counts as Equal"
    elif not toleration.key and not exists:
        yield "operator", f"{_REFUSED} without a key it has to be Exists"
    if exists and toleration.value:
        yield "value", f"{_REFUSED} the operator Exists has none"
    if toleration.effect and toleration.effect not in _EFFECTS:
        yield "effect", f"{_REFUSED} {toleration.effect!r} is none of {', '.join(_EFFECTS)}"
    elif toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        yield "tolerationSeconds", f"{_REFUSED} the effect has to be NoExecute"


def _number(value: str | float | None) -> Decimal | None:
    """A quantity as a number; None where there is none, or it cannot be read."""
    try:
        return parse_quantity(value) if value is not None else None
    except ValueError:
        return None


_WAYS: Mapping[str, tuple[type, Callable[[Any], Iterable[Problem]]]] = {
    "ClusterQueue": (_Quota, _of_quota),
    "Cohort": (_Quota, _of_quota),
    "LocalQueue": (_Quota, _of_weight),
    "ResourceFlavor": (_Flavored, _of_flavor),
}
