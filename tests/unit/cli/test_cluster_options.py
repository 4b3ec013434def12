"""The options that commands share: how a group becomes options, and filters that name the nearest."""

from collections.abc import Iterable
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from slicebus.cli.cluster.filters import check_known, unknown
from slicebus.cli.cluster.options import ClusterAccess, Output, OutputFormat, Scope, with_options
from slicebus.proto.errors import ConfigurationError


def called_with(*arguments: str) -> tuple[object, ...]:
    """What a command with an argument and three groups gets."""
    got: list[object] = []
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_options
    def command(
        name: Annotated[str, typer.Argument()], *, access: ClusterAccess, scope: Scope, format: OutputFormat
    ) -> None:
        got.extend((name, access, scope, format))

    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return tuple(got)


def test_a_group_has_its_defaults() -> None:
    assert called_with("x") == ("x", ClusterAccess(), Scope(), OutputFormat())


def test_each_field_of_a_group_is_an_option() -> None:
    got = called_with("x", "--context", "c", "--kubeconfig", "f", "-n", "team-a", "-o", "wide", "--no-headers")
    assert got == (
        "x",
        ClusterAccess(context="c", kubeconfig="f"),
        Scope(namespace="team-a"),
        OutputFormat(output=Output.WIDE, no_headers=True),
    )


@pytest.mark.parametrize(
    ("scope", "within"), [(Scope(), "mine"), (Scope(namespace="a"), "a"), (Scope(all_namespaces=True), None)]
)
def test_the_namespace_to_look_in(scope: Scope, within: str | None) -> None:
    assert scope.within("mine") == within


def test_all_namespaces_and_one_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="exclude each other"):
        Scope(namespace="a", all_namespaces=True).within("mine")


@pytest.mark.parametrize(
    ("text", "known", "told"),
    [
        ("Runing", ["Running", "Pending"], "there is no state Runing; did you mean Running?"),
        ("runing", ["Running", "Pending"], "there is no state runing; did you mean Running?"),
        ("zz", ["b", "a"], "there is no state zz, only a, b"),
    ],
)
def test_an_unknown_value(text: str, known: Iterable[str], told: str) -> None:
    assert unknown(text, "state", known) == told


def test_a_filter_is_checked_where_something_is_known() -> None:
    check_known(None, "queue", ["main"])
    check_known("main", "queue", ["main"])
    check_known("main", "queue", [])
    with pytest.raises(ConfigurationError, match="there is no queue mian; did you mean main"):
        check_known("mian", "queue", ["main"])
