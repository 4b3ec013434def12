"""What `slicebus diff --markdown` puts into the comment of a pull request, whose author has written the names."""

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from slicebus.cli.difference.page import markdown
from slicebus.manager.decide.forecast.difference import Effect, Fate
from slicebus.proto.messages import PodSetName


def cells(text: str) -> list[Token]:
    """The second row of the table, as GitHub reads it."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    return [token for token in tokens if token.type == "inline"][-4:]


def an_effect(**fields: str) -> Effect:
    named = {"job": "Job/team/train", "message": "no room", **fields}
    return Effect(fate=Fate.EVICTED, slice=("team", "train"), pods={PodSetName("main"): 3}, **named)


def test_a_row() -> None:
    [row] = markdown([an_effect(cluster="east")]).splitlines()[4:]
    assert row == "| ✗ | `Job/team/train` | would lose all its pods, main=3 on cluster east | `no room` |"


@pytest.mark.parametrize("field", ["job", "cluster", "message"])
@pytest.mark.parametrize(
    "text",
    [
        "![x](https://evil.example/x)",
        "[x](https://evil.example)",
        "<img src=x>",
        "<https://evil.example>",
        "@org/team",
        "a|b",
        "a\\|![x](https://evil.example/x)",
        "a\\\\|![x](https://evil.example/x)",
        "`![x](https://evil.example/x)",
        "``` ` ![x](https://evil.example/x)`",
        "one\n\n# two\n",
    ],
)
def test_no_name_is_markup(field: str, text: str) -> None:
    read = cells(markdown([an_effect(**{field: text})]))
    assert len(read) == 4
    assert {child.type for cell in read[1:] for child in cell.children or ()} <= {"text", "code_inline"}
    hostile = read[("job", "cluster", "message").index(field) + 1]
    assert [child.type for child in hostile.children or ()] == ["code_inline"]


def test_nothing_is_no_code() -> None:
    assert markdown([an_effect(message="")]).endswith("main=3 |  |")
