"""Shows the results of a replay in the terminal."""

import difflib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slicebus.agent.decide.catalog import MODEL as AGENT
from slicebus.agent.state.store import AgentStore as AgentStore
from slicebus.cli.durations import local_time
from slicebus.cli.job_states import JobState, JobStates, disagreements, of_agent, of_manager
from slicebus.cli.screen import styled
from slicebus.decisions.replay import Model, Replay, Replayed, Replayer
from slicebus.journal.recording import RoleName, Source
from slicebus.journal.recording_reader import Phase, malformed_refused
from slicebus.journal.redaction import Redactor, redacted
from slicebus.manager.decide.catalog import MODEL as MANAGER
from slicebus.manager.state.store import ManagerStore as ManagerStore
from slicebus.proto.messages import counts_text

MODELS: Mapping[RoleName, Model] = {"manager": MANAGER, "agent": AGENT}
_MOST_CHARACTERS = 110
"""The most characters of a decision in one line."""


def _line(decision: Replayed) -> Text:
    """One decision."""
    at = local_time(datetime.fromtimestamp(decision.at, UTC), timespec="milliseconds")
    style = "green" if decision.same else "bold red"
    text = f"{decision.arguments.decode()} -> {decision.recorded.decode()}"
    return styled(
        (f"{decision.position!s:>9} ", "dim"),
        (f"{at} ", "dim"),
        ("= " if decision.same else "! ", style),
        (f"{decision.source.cluster or decision.source.role:<12} ", "bold"),
        (f"{decision.what:<14} ", "cyan"),
        text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…",
    )


def in_full(decision: Replayed) -> RenderableType:
    """A decision with its arguments and outcome, without secrets; where it differs, both outcomes."""
    decision = _without_secrets(decision)
    head = Text.assemble(("arguments ", "dim"), _pretty(decision.arguments))
    if decision.same:
        return Group(_line(decision), head, Text.assemble(("decided   ", "dim"), _pretty(decision.recorded)))
    if decision.problem:
        recorded = Text.assemble(("recorded  ", "dim"), _pretty(decision.recorded))
        return Group(_line(decision), head, recorded, styled(decision.problem))
    recorded_lines, replayed_lines = (_indented(side).splitlines() for side in (decision.recorded, decision.replayed))
    styles = {"-": "red", "+": "green", "@": "dim"}
    difference = difflib.unified_diff(recorded_lines, replayed_lines, "recorded", "this version", lineterm="", n=4)
    return Group(_line(decision), head, *(styled(text, style=styles.get(text[:1], "")) for text in difference))


def _without_secrets(decision: Replayed) -> Replayed:
    """A decision without the secrets that its role may have recorded."""
    redactor = Redactor()
    parts = {name: redactor.encoded(getattr(decision, name)) for name in ("arguments", "recorded", "replayed")}
    return msgspec.structs.replace(decision, problem=redactor.value(decision.problem), **parts)


def job_states_of(replayer: Replayer) -> tuple[JobStates, dict[str, JobStates]]:
    """The manager's job states and those of each agent, at this point of the recording; of several leaders the last.

    Raises InvalidError for a recording with objects that no role has recorded.
    """
    newest: dict[tuple[str, str], Replay] = {}
    for source, replay in sorted(replayer.sources.items()):
        if replay.reader.phase is Phase.KNOWN:
            newest[source.role, source.cluster] = replay
    manager: JobStates = {}
    agents: dict[str, JobStates] = {}
    for replay in newest.values():
        with malformed_refused(f"{replay.source}: objects"):
            if isinstance(replay.state, ManagerStore):
                manager = of_manager(replay.state)
            elif isinstance(replay.state, AgentStore):
                cluster = replay.source.cluster
                agents[cluster] = of_agent(replay.state, cluster=cluster)
    return manager, agents


def state(replayer: Replayer) -> RenderableType:
    """The state of each job as the manager and its agent have it, and where they differ."""
    manager, agents = job_states_of(replayer)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("cluster", "job", "who", "slice", "version", "granted", "wanted", ""):
        table.add_column(column, justify="right" if column == "version" else "left", overflow="fold")
    different = {(difference.cluster, difference.job): difference for difference in disagreements(manager, agents)}
    known = {(state.cluster, job) for job, state in manager.items()}
    known |= {(cluster, job) for cluster, states in agents.items() for job in states}
    for cluster, job in sorted(known):
        about = different[cluster, job].about if (cluster, job) in different else ()
        mine = manager.get(job)
        sides = {
            "manager": mine if mine and mine.cluster == cluster else None,
            "agent": agents.get(cluster, {}).get(job),
        }
        for role, state in sides.items():
            if state is not None or cluster in agents:
                table.add_row(styled(cluster or "-"), styled(job), role, *_cells(state, about))
    unknown = [
        str(source) for source, replay in sorted(replayer.sources.items()) if replay.reader.phase is not Phase.KNOWN
    ]
    ends = [Text(f"not known here: {', '.join(unknown)}", style="yellow")] if unknown else []
    count = len(different)
    verdict = Text(f"{count} of {len(known)} jobs are not seen alike" if count else "all jobs are seen alike")
    return Group(table, verdict, *ends)


def passed_over(replayer: Replayer) -> Iterator[str]:
    """The decisions that could not be made again, and why."""
    for source, replay in sorted(replayer.sources.items()):
        if replay.passed_over:
            yield f"{source}: {replay.passed_over} decisions passed over, from before its state was recorded"


def by_source(counts: Mapping[Source, int]) -> str:
    """Counts as one text: `manager, epoch 1: 20; agent east, epoch 3: 7`."""
    return "; ".join(f"{source}: {count}" for source, count in sorted(counts.items()))


def _cells(state: JobState | None, about: tuple[str, ...]) -> list[Text]:
    if state is None:
        return [Text("nothing", style="red"), *[Text("")] * 4]
    values = {
        "slice": state.slice or "none",
        "version": str(state.version),
        "granted": counts_text(state.granted),
        "wanted": counts_text(state.wanted),
    }
    cells = [styled(value, style="red" if name in about else "") for name, value in values.items()]
    return [*cells, styled(redacted(state.note), style="dim")]


def _pretty(json: bytes) -> str:
    return json.decode() if len(json) <= _MOST_CHARACTERS else _indented(json)


def _indented(json: bytes) -> str:
    """The JSON with a line for each value; unchanged where it is nested too deep for that."""
    try:
        value: Any = orjson.loads(json)
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return json.decode(errors="replace")
