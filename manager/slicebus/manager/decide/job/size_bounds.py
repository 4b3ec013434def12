"""Reads what a job says of its size, and refuses sizes that it does not ask for, whoever asks in its name.

A worker's agent says what its copy of a job wants. A stolen agent, or a tenant of the worker, may say anything: what
the manager's job says bounds it. How many pods it may lose, and after what notice, stands on its slices: they are
admitted by that.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

import msgspec

from slicebus.manager.state.annotations import annotation, as_copied
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, Manifest, counts_text
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.api.durations import seconds
from slicebus.slices.jobs import KINDS, Problem
from slicebus.slices.jobs.copies import MOST_PODS
from slicebus.slices.schedulers import is_gang
from slicebus.slices.workload import elasticity
from slicebus.slices.workload.elasticity import RIGID, Elasticity, in_whole

PAST_BOUNDS = "PastBounds"
"""The reason of a request for more than the job itself allows."""


def problem(view: JobView, wanted: Counts, *, factor: int) -> str:
    """Why a request of its worker is for more than the job allows, or for what no job can have; empty where it is not.

    `factor`: the most pods of a pod set that nothing bounds, as a multiple of those in the job's spec; 0 for any. What
    is granted already is never too much.
    """
    job = view.job
    if job is None:
        return ""
    if not wanted:
        return "The worker's job has no pod set left, and a resize may change counts only"
    if too_many := {name: count for name, count in wanted.items() if count > MOST_PODS}:
        return f"The worker asks for {counts_text(too_many)}, and no job has more than {MOST_PODS} pods of a pod set"
    most = most_of(job, view.desired.own, factor=factor)
    granted = view.holder.granted if view.holder is not None else {}
    past = {name: most[name] for name, count in wanted.items() if name in most and count > most[name]}
    past = {name: count for name, count in past.items() if wanted[name] > granted.get(name, 0)}
    if not past:
        return ""
    asked = {name: wanted[name] for name in past}
    return (
        f"The worker asks for {counts_text(asked)}, and the job allows {counts_text(past)}: raise its maxReplicas, or "
        f"its annotation {api_names.MAX_SIZE_ANNOTATION}"
    )


def most_of(job: Manifest, own: Counts, *, factor: int) -> Counts:
    """The most pods that a job may be resized to on its worker, by pod set. One without a bound is left out."""
    bounds, named = KINDS[job["kind"]].most(job), max_size(job)
    most: Counts = {}
    for name, count in own.items():
        chosen = named.get(name, named.get("", factor * max(count, 1) if factor else None))
        limits = [limit for limit in (bounds.get(name), chosen) if limit is not None]
        if limits:
            most[name] = max(count, min(limits))
    return most


def max_size(job: Manifest) -> Counts:
    """What the job's own annotation says: the most pods by pod set, or under the empty name of each pod set. Empty
    without one, and for one that nobody can read."""
    text = annotation(job, _MAX)
    if text is not None and _names_pod_sets(text):
        return dict(Elasticity.from_annotations({_MAX: text}, _sizes(job)).most)
    sizes = read_json(text, _SIZES)
    return {"": sizes} if isinstance(sizes, int) else dict(sizes or {})


def useful(job: Manifest, most: Mapping[str, int]) -> Counts:
    """For how many pods a job of these sizes has work, by its status: a Job makes no more than are left to complete. A
    pod set that has work for all is left out, and so is each of a job whose end follows its size."""
    kind = KINDS[job["kind"]]
    resized = kind.with_counts(job, dict(most))
    counts = kind.counts(resized, resized)
    ended = {} if kind.ends_by_size(job) else kind.finished(resized)
    return {name: counts[name] - count for name, count in ended.items()}


def problems(job: Manifest) -> list[Problem]:
    """Why what the job says of its size makes no sense; empty where it does, or says nothing."""
    return list(_problems(job).values())


def has_other_indexes(view: JobView, job: Manifest) -> bool:
    """Whether a Job keeps its completions, and somebody has given it another size than its spec's where it runs. How
    many indexes it has there is not known: its user may have changed both numbers, or one."""
    kind, desired = KINDS[view.ref.kind], view.desired
    if _COMPLETIONS not in kind.bounds(job) or kind.end_follows(job):
        return False
    note = desired.reclaimed
    return desired.own != (desired.spec_counts if note is None else note.asked or note.before)


def said_by(
    job: Manifest, *, fixed: bool, upgrade: bool = False, autoscaled: bool = False, resized: bool = False
) -> dict[str, str | None]:
    """What a job says of its size, as annotations of its slices; None for what it does not say, or what makes no sense.

    A job of a `fixed` size only says what notice it wants. One whose size Ray's autoscaler owns where it runs
    (`autoscaled`) has no greatest size, as it asks by itself; the least of a group that its own does not name is the
    group's `minReplicas`. With Kueue's annotation for partial preemption, and none of ours, the job's spec says the
    least size. A RayService has no least size during an `upgrade`, and no greatest one; nor has a job that names a gang
    scheduler a greatest one. A greatest size that names no pod set is for what its worker asks for; any other is no
    more than its spec lets it have.
    """
    wrong = _problems(job)
    said = {name: None if name in wrong else annotation(job, name) for name in _SAID} | {_TOGETHER: None}
    if not _names_pod_sets(said[_MAX] or ""):
        said[_MAX] = None
    if is_gang(job) or upgrade or fixed or resized:
        said[_MAX] = None
    if upgrade or fixed:
        said[_MIN] = None
    elif (least := _least(job, said[_MIN], autoscaled=autoscaled)) is not None:
        groups = _sized_together(job)
        said |= {_MIN: _with_others(job, least, groups), _TOGETHER: ",".join(map("+".join, groups)) or None}
    if (most := said[_MAX]) is not None:
        said[_MAX] = None if autoscaled or _moves_others(job, most) else _possible(job, most)
    return said


def unheeded(view: JobView) -> dict[str, str]:
    """What the job says of its size to no effect: what happens instead, by the path of the annotation."""
    if view.job is None:
        return {}
    told = {name: f"it makes no sense, as {problem.message}" for name, problem in _problems(view.job).items()}
    told |= {name: instead for name, instead in _not_allowed(view, view.job) if name not in told}
    told |= _neither_true_nor_false(view.job)
    if annotation(view.job, _SYNC) == "true" and not KINDS[view.ref.kind].end_follows(view.job):
        told[_SYNC] = "completions stay as they are: only an Indexed Job with as many as pods at a time has them follow"
    if view.is_fixed and annotation(view.job, _MIN) is not None:
        told[_MIN] = "a job of a fixed size loses all of its pods or none"
    elif kept := _kept_by_gang(view):
        told[_MIN] = f"the job's gang was made for more pods, and keeps {counts_text(kept)} until it starts anew"
    if (
        _is_partial(view.job)
        and annotation(view.job, _MIN) is None
        and said_by(view.job, fixed=view.is_fixed, autoscaled=view.is_autoscaled)[_MIN] is None
    ):
        told[_PARTIAL] = f"the job loses all of its pods or none: {_MIN} says how few are of use"
    return {f"metadata.annotations[{name}]": message for name, message in told.items()}


def _neither_true_nor_false(job: Manifest) -> dict[str, str]:
    """What is wrong with the annotations that are either, by name; another value counts as false."""
    said = {name: annotation(job, name) for name in _SWITCHES}
    return {
        name: f"it may be 'true' or 'false', and is {value[:_SHOWN]!r}"
        for name, value in said.items()
        if value not in (None, "true", "false")
    }


def _not_allowed(view: JobView, job: Manifest) -> Iterator[tuple[str, str]]:
    """What the job's queue, the manager, or its own end does not allow: what happens instead, by annotation."""
    allowed, most = view.allowed, _completions(job)
    if (annotation(job, _MIN) is not None or _is_partial(job)) and not allowed.gives_pods:
        said = _MIN if annotation(job, _MIN) is not None else _PARTIAL
        yield said, "the job loses all of its pods or none, as its ClusterQueue or the manager says"
    if _names_pod_sets(annotation(job, _MAX) or "") and not allowed.grows:
        yield _MAX, "the job takes no quota that nobody waits for, as its ClusterQueue or the manager says"
    if _moves_others(job, annotation(job, _MAX) or ""):
        yield (
            _MAX,
            "the job takes no quota that nobody waits for: its pod sets have their size from one number",
        )
    elif _names_pod_sets(annotation(job, _MAX) or "") and (view.is_fixed or (is_gang(job) and not view.is_autoscaled)):
        what = "a job of a fixed size" if view.is_fixed else "a job with a gang scheduler"
        yield _MAX, f"{what} takes no quota that nobody waits for"
    elif _names_pod_sets(annotation(job, _MAX) or "") and any(
        count > most[name] for name, count in max_size(job).items() if name in most
    ):
        yield _MAX, f"the job has no more pods than completions: these stay, as {_SYNC} says 'false'"
    elif _names_pod_sets(annotation(job, _MAX) or "") and has_other_indexes(view, job):
        yield (
            _MAX,
            "the job takes no quota that nobody waits for: it was resized where it runs, and keeps its completions",
        )
    if (seconds(annotation(job, _NOTICE) or "") or 0.0) > allowed.notice_cap_s:
        yield _NOTICE, f"the longest notice that its ClusterQueue and the manager allow is {allowed.notice_cap_s:g} s"


def _problems(job: Manifest) -> dict[str, Problem]:
    """What makes no sense, by annotation."""
    said = {name: text for name in _SAID if (text := annotation(job, name)) is not None}
    if not said:
        return {}
    found: dict[str, Problem] = {}
    sizes = _sizes(job)
    if _MAX in said and not _names_pod_sets(said[_MAX]):
        named = max_size(job)
        unknown = next((name for name in named if name and name not in sizes), "")
        message = f"the annotation {_MAX} names the pod set {unknown[:_SHOWN]}, and the job has only {', '.join(sizes)}"
        if not named:
            message = f"the annotation {_MAX} is neither a number of pods nor a map of them by pod set"
        if unknown or not named:
            found[_MAX] = Problem(elasticity.INVALID_MAX_SIZE, message)
        del said[_MAX]
    fixed = _fixed(job, sizes)
    if _is_autoscaled(job):
        # It begins with few pods, and says how many it may have.
        most = KINDS[job["kind"]].most(job)
        sizes |= {name: max(count, most.get(name, MOST_PODS)) for name, count in sizes.items() if name not in fixed}
    for name, reason, message in elasticity.problems(said, sizes, fixed=fixed):
        found[name] = Problem(reason, message)
    if _MIN in said and _MIN not in found and (message := _too_few(job, sizes, said[_MIN])):
        found[_MIN] = Problem(elasticity.INVALID_MIN_SIZE, message)
    return found


def _is_autoscaled(job: Manifest) -> bool:
    return KINDS[job["kind"]].is_autoscaled(as_copied(job))


def _least(job: Manifest, named: str | None, *, autoscaled: bool) -> str | None:
    """A job's least size: what it has named, with that of its spec for the other groups of Ray's autoscaler, or that of
    its spec alone where it takes part in partial preemption. None for none."""
    if named is None:
        own = KINDS[job["kind"]].least(job) if _is_partial(job) else {}
    elif autoscaled:
        own = {**KINDS[job["kind"]].least(job), **Elasticity.from_annotations({_MIN: named}, _sizes(job)).least}
    else:
        return named
    return ",".join(f"{name}={count}" for name, count in own.items()) or None


def _with_others(job: Manifest, text: str, groups: Iterable[tuple[str, ...]]) -> str:
    """A least size with those of pod sets that have their size from the same number as the ones that it names."""
    named = Elasticity.from_annotations({_MIN: text}, _sizes(job)).least
    least = dict(named)
    for names in groups:
        for name in least.keys() & {*names} & named.keys():
            step = KINDS[job["kind"]].step(job, name)
            left = _sized(job, {name: in_whole(named[name], step)})
            least |= {other: max(least.get(other, 0), left[other]) for other in names if other != name}
    return text if least == named else ",".join(f"{name}={count}" for name, count in least.items())


def _sized_together(job: Manifest) -> list[tuple[str, ...]]:
    """The groups of pod sets that have their size from one number of the job."""
    sizes, groups = _sizes(job), list[tuple[str, ...]]()
    for name, count in sizes.items() if len(sizes) > 1 else ():
        larger = _sized(job, {name: count + KINDS[job["kind"]].step(job, name)})
        group = tuple(other for other, size in sizes.items() if larger[other] != size)
        if len(group) > 1 and group not in groups:
            groups.append(group)
    return groups


def _moves_others(job: Manifest, text: str) -> bool:
    """Whether a greatest size for a pod set makes others larger too."""
    most = Elasticity.from_annotations({_MAX: text}, _sizes(job)).most
    return any(not most.keys().isdisjoint(names) for names in _sized_together(job)) if most else False


def _is_partial(job: Manifest) -> bool:
    return annotation(job, _PARTIAL) == "true"


def _kept_by_gang(view: JobView) -> Counts:
    """The pods by pod set that the gang of a job with quota keeps beyond its least size."""
    said = view.holder.elasticity if view.holder is not None else RIGID
    return {name: count for name, count in (said.gang or {}).items() if count > said.least.get(name, count)}


def _fixed(job: Manifest, sizes: Counts) -> frozenset[str]:
    """The pod sets that no resize of the job changes, such as a Ray cluster's head."""
    kind = KINDS[job["kind"]]
    steps = {name: kind.step(job, name) for name in sizes}
    return frozenset(
        name
        for name, count in sizes.items()
        if all(_resized(job, name, count + by) == count for by in (steps[name], -min(steps[name], count)))
    )


def _too_few(job: Manifest, sizes: Counts, text: str) -> str:
    """Why the job cannot have as few pods as its least size; empty where it can."""
    kind = KINDS[job["kind"]]
    for name, least in Elasticity.from_annotations({_MIN: text}, sizes).least.items():
        step = kind.step(job, name)
        whole = in_whole(least, step)
        if not whole and kind.end_follows(job):
            return f"the annotation {_MIN} leaves {name} no pod, and a job with as many completions has ended then"
        if (left := _resized(job, name, whole)) > whole:
            return f"the annotation {_MIN} has fewer pods of {name} than the job keeps by its spec: {left}"
    return ""


def _possible(job: Manifest, text: str) -> str:
    """A greatest size without what the job's spec does not let it have: more than its maxReplicas or completions."""
    bounds = {**KINDS[job["kind"]].most(job), **_completions(job)}
    named = Elasticity.from_annotations({_MAX: text}, _sizes(job)).most
    within = {name: min(count, bounds.get(name, count)) for name, count in named.items()}
    possible = {name: min(count, _resized(job, name, count)) for name, count in within.items()}
    return text if possible == named else ",".join(f"{name}={count}" for name, count in possible.items())


def _completions(job: Manifest) -> Counts:
    """The most pods by pod set of a job that ends by its size, where its end does not follow the pods that it is given.
    Empty for any other."""
    kind = KINDS[job["kind"]]
    return _sizes(job) if kind.ends_by_size(job) and not kind.end_follows(job) else {}


def _resized(job: Manifest, pod_set: str, count: int) -> int:
    """How many pods of a pod set the job has when it is resized to this count."""
    return _sized(job, {pod_set: count})[pod_set]


def _sized(job: Manifest, counts: Counts) -> Counts:
    """The pods by pod set that the job has when it is resized to these."""
    kind = KINDS[job["kind"]]
    resized = kind.with_counts(job, counts)
    return kind.counts(resized, resized)


def _sizes(job: Manifest) -> Counts:
    return KINDS[job["kind"]].counts(job, job)


def _names_pod_sets(text: str) -> bool:
    return "=" in text


_MIN, _MAX, _NOTICE = api_names.MIN_SIZE_ANNOTATION, api_names.MAX_SIZE_ANNOTATION, api_names.NOTICE_ANNOTATION
_SAID = (_MIN, _MAX, _NOTICE)
_TOGETHER = api_names.SIZED_TOGETHER_ANNOTATION
_PARTIAL = kueue.PARTIAL_PREEMPTION_ANNOTATION
_SYNC = kueue.SYNC_COMPLETIONS_ANNOTATION
_SWITCHES = (_PARTIAL, _SYNC, kueue.ELASTIC_ANNOTATION, api_names.PARTIAL_SCALE_UP_ANNOTATION)
_COMPLETIONS = "completions"
"""Among the bounds of an Indexed Job."""
_SHOWN = 63
"""Characters of a value that is none of these."""
_Size = Annotated[int, msgspec.Meta(ge=0, le=MOST_PODS)]
_SIZES: msgspec.json.Decoder[int | dict[str, int]] = msgspec.json.Decoder(_Size | dict[str, _Size])
