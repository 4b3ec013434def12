"""`slicebus fleet join`: the file with an agent's address, what it prints, and what it refuses first."""

import shlex
import stat
from pathlib import Path

import pytest

from slicebus.cli.fleet.address_file import check_writable, write
from slicebus.cli.fleet.join import steps
from slicebus.proto.errors import ConfigurationError
from unit.cli.hostile import call

OLD = "url=amqps://east:secret@broker:5671/slicebus\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "east.env"


@pytest.mark.parametrize("force", [False, True])
def test_a_new_file_may_be_written(file: Path, force: bool) -> None:
    check_writable(file, "east", force=force)


def test_an_older_address_of_the_same_user_may_go_by_force(file: Path) -> None:
    file.write_text(OLD)
    with pytest.raises(ConfigurationError, match=r"east\.env is there, with an address of .* east: --force overwrites"):
        check_writable(file, "east", force=False)
    check_writable(file, "east", force=True)


@pytest.mark.parametrize(
    "text", ["", "TOKEN=x\n", OLD.replace("//east", "//west"), OLD + OLD, "url=http://east@x\n", "url=amqps://[\n"]
)
@pytest.mark.parametrize("force", [False, True])
def test_no_other_file_is_overwritten(file: Path, text: str, force: bool) -> None:
    file.write_text(text)
    with pytest.raises(
        ConfigurationError, match=r"is no address of the broker user east: move it away, or name"
    ) as told:
        check_writable(file, "east", force=force)
    assert "secret" not in str(told.value)


def test_a_folder_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="move it away"):
        check_writable(tmp_path, "east", force=True)


def test_only_its_owner_can_read_the_file(file: Path) -> None:
    file.write_text(OLD)
    file.chmod(0o644)
    write(file, "new\n")
    assert file.read_text() == "new\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere/east\.env: No such file or directory; name another"):
        write(tmp_path / "nowhere" / "east.env", "x")


def printed(**values: str | None) -> list[str]:
    """The commands, a line each."""
    given = {"namespace": "slicebus-system", "image": "r.example/agent", "authority": None} | values
    text = "\n".join(steps("east", "manager", file=Path("east.env"), **given))  # type: ignore[arg-type]
    return [shlex.join(shlex.split(line)) for line in text.replace("\\\n", " ").splitlines()[2:]]


def test_the_commands_for_a_public_authority() -> None:
    assert printed() == [
        "kubectl create namespace slicebus-system",
        "kubectl create secret generic slicebus-amqp -n slicebus-system --from-env-file=east.env",
        "helm install slicebus-agent charts/slicebus-agent -n slicebus-system "
        "--set-string cluster=east --set-string managerUser=manager --set-string image.repository=r.example/agent "
        "--set amqp.existingSecret.name=slicebus-amqp",
    ]


def test_a_private_authority_gets_a_secret_of_its_own() -> None:
    _, _, secret, helm = printed(authority="my ca.pem")
    assert secret == "kubectl create secret generic slicebus-amqp-ca -n slicebus-system '--from-file=ca.crt=my ca.pem'"
    assert helm.endswith(" --set amqp.caSecret.name=slicebus-amqp-ca")


@pytest.mark.parametrize("name", ["East", "a.b", "-a", "a-", "x" * 64, "east west", ""])
@pytest.mark.parametrize("command", ["join", "revoke"])
def test_a_bad_name_is_refused_in_words_before_anything_else(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that it would need is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.setenv("AMQP_URL", "amqps://broker")
    monkeypatch.setenv("SLICEBUS_BROKER_API", "https://u:p@broker")
    done = call("fleet", command, "--", name)
    told = f"slicebus: {name!r} is no name of a cluster: use 1 to 63 of a-z, 0-9 and -, with no - at either end\n"
    assert (done.status, done.err) == (2, told)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("content", "told"), [(None, "No such file or directory"), ("x", "no certificate in PEM")])
def test_a_file_that_is_no_authority_is_refused(
    content: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = tmp_path / "ca.pem"
    if content:
        ca.write_text(content)
    monkeypatch.setenv("AMQP_URL", "amqps://broker")
    monkeypatch.setenv("SLICEBUS_BROKER_API", "https://u:p@broker")
    done = call("fleet", "join", "east", "--ca-file", str(ca))
    assert (done.status, told in done.err) == (2, True), done.err
