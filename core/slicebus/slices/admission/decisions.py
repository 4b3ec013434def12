"""What an admission cycle decides about a slice."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from slicebus.slices.admission.idle_quota import Grow
from slicebus.slices.admission.preemption import Preemptor, message_of
from slicebus.slices.admission.reductions import Victim
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.placement.flavors import Misfit
from slicebus.slices.quota.quota import Usage
from slicebus.slices.workload.reclaimed import Beneficiary
from slicebus.slices.workload.workload import Admission, Counts, Slice, SliceKey


class Admit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A slice gets quota and a cluster."""

    key: SliceKey
    admission: Admission
    cluster: str


class Wait(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A slice waits, and why."""

    key: SliceKey
    reason: str
    message: str
    would_admit: str = ""


class Evict(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A chain loses its quota; `key` is the slice that holds it.

    The quota stays charged until the worker has no pod of it left: `Slice.evicting`.
    """

    key: SliceKey
    reason: EvictionReason
    message: str
    preemption: str = ""
    """The `PreemptionReason`; empty for any other eviction."""


class Shrink(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A chain loses pods; `key` is the slice that holds its quota.

    Their quota stays charged until the worker has none of them left: `Slice.shrinks_to`.
    """

    key: SliceKey
    to: Counts
    """Its pods by pod set from now on."""
    beneficiary: Beneficiary
    """The slice that gets their quota."""
    preemption: str
    """The `PreemptionReason`."""
    message: str
    is_alone: bool = False
    """That of `Taken`."""


Decision = Admit | Wait | Evict | Shrink | Grow


def deeds_of(preemptor: Preemptor, victims: Sequence[Victim], *, own: Usage) -> list[Evict | Shrink]:
    """What each victim loses to a preemptor, whose chain holds `own`."""
    wanted = {key: need - own.get(key, 0) for key, need in preemptor.needs.items()}
    freed = {key for victim in victims for key in victim.freed}
    is_alone = all(sum(victim.freed.get(key, 0) for victim in victims) <= wanted.get(key, 0) for key in freed)
    return [deed_of(preemptor, victim, is_alone=is_alone) for victim in victims]


def deed_of(preemptor: Preemptor, victim: Victim, *, is_alone: bool = False) -> Evict | Shrink:
    """What one victim loses. A job that has ended loses all the pods that it has left, as no worker makes it smaller
    any more."""
    holder, slice, to = victim.candidate.slice, preemptor.slice, victim.to
    if to is None or holder.waits_for_pods:
        message = message_of(preemptor, replace(victim, to=None))
        return Evict(key=holder.key, reason=EvictionReason.PREEMPTED, message=message, preemption=victim.reason)
    beneficiary = Beneficiary(workload=slice.key, uid=slice.uid, job_uid=slice.job_uid)
    message, why = message_of(preemptor, victim), victim.reason
    return Shrink(key=holder.key, to=to, beneficiary=beneficiary, preemption=why, message=message, is_alone=is_alone)


def wait_for(slice: Slice, misfit: Misfit) -> Wait:
    """That a slice waits, as it does not fit."""
    return Wait(key=slice.key, reason=misfit.reason, message=misfit.message, would_admit=misfit.lacking)
