"""The options that every command has which reads a cluster.

A command takes a group of options as one parameter, such as `access: ClusterAccess`. `with_options` gives the command
line an option for each field of the group instead.
"""

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, get_type_hints

import msgspec
import typer

from slicebus.cli.cluster.filters import option_of
from slicebus.proto.errors import ConfigurationError

_BOTH = "--all-namespaces and --namespace exclude each other"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """A group of options: each field is one, with a default."""


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    WIDE = "wide"
    """A table with more columns."""
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    """`kind/name` for kubectl, one on each line."""

    @property
    def is_table(self) -> bool:
        """Whether people read it, in columns."""
        return self in (Output.TABLE, Output.WIDE)


class ClusterAccess(Options, frozen=True, kw_only=True):
    """Which cluster, and as whom."""

    kubeconfig: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The cluster; else that of KUBECONFIG, of the pod this runs in, or of ~/.kube/config."
        ),
    ] = None
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context of the kubeconfig, in place of its current one.")
    ] = None


class ManagerPlace(Options, frozen=True, kw_only=True):
    """Where the managers are whose Leases say whether they work."""

    manager_namespace: Annotated[
        str, typer.Option(envvar="SLICEBUS_NAMESPACE", show_envvar=True, metavar="NAME", help="Where managers run.")
    ] = "slicebus-system"


class Scope(Options, frozen=True, kw_only=True):
    """In which namespaces to look."""

    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Only this namespace; else the context's.")
    ] = None
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Every namespace.")] = False

    def within(self, default: str | None) -> str | None:
        """The namespace to look in; None for all, which may be the default. Raises ConfigurationError for both
        options."""
        if self.all_namespaces and self.namespace is not None:
            raise ConfigurationError(_BOTH)
        return None if self.all_namespaces else self.namespace or default


class JobScope(Options, frozen=True, kw_only=True):
    """In which namespaces to look for a job that is named."""

    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="Only this namespace; else all that you may see."),
    ] = None
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Every namespace that you may see: the default.")
    ] = False

    @property
    def only(self) -> str | None:
        """The namespace to look in; None for all. Raises ConfigurationError for both options."""
        if self.all_namespaces and self.namespace is not None:
            raise ConfigurationError(_BOTH)
        return self.namespace


class OutputFormat(Options, frozen=True, kw_only=True):
    """How to print what was found."""

    output: Annotated[
        Output,
        option_of(Output, "output format", "--output", "-o", help=f"How to print it: {', '.join(Output)}."),
    ] = Output.TABLE
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Leave the titles of a table out.")] = False


class Watch(Options, frozen=True, kw_only=True):
    """Whether to go on."""

    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print what changes, until Ctrl-C.")] = False


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its parameters that are groups."""
    parameters, groups = list[inspect.Parameter](), dict[str, type[Options]]()
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if not (isinstance(kind, type) and issubclass(kind, Options)):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = kind
        hints = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            for field in msgspec.structs.fields(kind)
        ]

    @wraps(command)
    def run(**given: Any) -> None:
        values = {
            name: kind(**{field: given.pop(field) for field in kind.__struct_fields__}) for name, kind in groups.items()
        }
        command(**given, **values)

    del run.__wrapped__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
