"""What holds for the whole checkout: the layout, the wheel, the direction of imports, and what documents say."""

import ast
import itertools
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from slicebus.proto.errors import DeadReason
from slicebus.slices.api import kueue
from support.image import build_wheel

TOP = Path(__file__).parents[2]
ROOTS = ("proto", "core", "agent", "manager", "sandbox", "cli")
PACKAGES = (
    "agent",
    "ambient",
    "bus",
    "cli",
    "decisions",
    "journal",
    "kube",
    "manager",
    "proto",
    "runtime",
    "sandbox",
    "slices",
)
MOST_LINES = 400
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PASSWORD = re.compile(
    r"://[^/\s:@]+:[^/\s@]+@|--from-literal|--set\S*[ =]\S*amqp\.url|--password\b|\badd_user\s+\S+[ \t]+\S"
)
"""A password on a command line, or a way to put it there."""
OF_A_DEPENDENCY = {"google": "opentelemetry-proto is of its messages"}
"""Modules of a distribution that another one is there for, and may be imported with it."""
OF_A_MACHINE = re.compile(r"/(?:home|root|work|Users)/\w|\b(?:docker|ghcr|quay|gcr)\.io\b|\bregistry\.k8s\.io\b")


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository; every file that is not ignored where there is no git."""
    done = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=TOP, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [path for name in done.stdout.split("\0") if name and (path := TOP / name).is_file()]


def modules() -> Iterator[Path]:
    for root in ROOTS:
        yield from (TOP / root / "slicebus").rglob("*.py")


def test_the_namespace_has_no_package_of_its_own() -> None:
    stray = [root for root in ROOTS if (TOP / root / "slicebus" / "__init__.py").exists()]
    assert not stray, "a slicebus/__init__.py hides the other roots"


def test_modules_are_short() -> None:
    long = {str(path.relative_to(TOP)): n for path in modules() if (n := path.read_text().count("\n")) > MOST_LINES}
    assert not long


def test_no_two_public_classes_share_a_bare_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(TOP)))
    assert places
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_the_wheel_has_every_package_and_its_data(tmp_path: Path) -> None:
    wheel = zipfile.ZipFile(build_wheel(tmp_path))
    names = set(wheel.namelist())
    for package in PACKAGES:
        assert f"slicebus/{package}/__init__.py" in names
        assert f"slicebus/{package}/py.typed" in names
    assert "slicebus/kube/crds/workerclusters.slicebus.dev.yaml" in names
    assert {f"slicebus/journal/{file}" for file in ("page.html.j2", "chart.html.j2", "chart.css")} <= names
    data = [path for folder in ("templates", "static") for path in (TOP / "cli/slicebus/cli/view" / folder).iterdir()]
    assert {f"slicebus/cli/view/{path.parent.name}/{path.name}" for path in data} <= names
    foreign_pods = {name for name in names if not name.startswith(("slicebus/", "slicebus-"))}
    assert not foreign_pods
    [entry_points] = [name for name in names if name.endswith("entry_points.txt")]
    commands = wheel.read(entry_points).decode().splitlines()
    assert {
        "slicebus = slicebus.cli.entry:main",
        "kubectl-slicebus = slicebus.cli.entry:main",
        "kubectl_complete-slicebus = slicebus.cli.completion:main",
    } <= set(commands)


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("core/slicebus/slices/workload/chain.py", "import asyncio", "The domain and the contract do no I/O"),
        ("proto/slicebus/proto/codec.py", "import slicebus.slices.workload.chain", "Imports point inward"),
        (
            "core/slicebus/bus/access/login.py",
            "import slicebus.bus.rabbitmq.link",
            "A room of the bus imports from the rooms below it",
        ),
        (
            "agent/slicebus/agent/state/annotations.py",
            "import slicebus.manager.state.annotations",
            "Imports point inward",
        ),
        ("agent/slicebus/agent/app.py", "import slicebus.sandbox.bus", "Imports point inward"),
        (
            "manager/slicebus/manager/decide/messages/message_handlers.py",
            "import slicebus.manager.act.inbox",
            "The manager acts by its decisions",
        ),
        (
            "manager/slicebus/manager/state/views.py",
            "import slicebus.manager.decide.messages.message_handlers",
            "The manager acts by its decisions",
        ),
        (
            "agent/slicebus/agent/decide/order/orders.py",
            "import slicebus.agent.act.inbox",
            "The agent acts by its decisions",
        ),
        (
            "agent/slicebus/agent/decide/pods/pod_fit.py",
            "import slicebus.agent.decide.job.waiting",
            "A room of the agent's decisions imports from the rooms below it",
        ),
        ("agent/slicebus/agent/decide/order/orders.py", "import asyncio", "Decisions and state are pure"),
        ("manager/slicebus/manager/state/views.py", "import structlog", "Decisions and state are pure"),
        ("cli/slicebus/cli/view/pages/job.py", "import asyncio", "The pages of the view are pure"),
    ],
)
def test_an_import_that_points_outward_is_found(tmp_path: Path, module: str, line: str, contract: str) -> None:
    for name in (*ROOTS, "pyproject.toml"):
        copy = shutil.copytree if (TOP / name).is_dir() else shutil.copyfile
        copy(TOP / name, tmp_path / name)
    spoiled = tmp_path / module
    spoiled.write_text(f"{spoiled.read_text()}\n{line}\n")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(str(tmp_path / root) for root in ROOTS), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{contract} BROKEN" in done.stdout


def test_every_folder_of_tests_is_run() -> None:
    listed = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    found = {"/".join(path.relative_to(TOP).parts[:2]) for path in (TOP / "tests").rglob("test_*.py")}
    assert sorted(listed) == sorted(found)


def test_nothing_names_a_machine_or_a_registry() -> None:
    found = {}
    for path in tracked():
        if path.suffix in (".lock", ".sum") or path == Path(__file__):
            continue
        try:
            match = OF_A_MACHINE.search(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
        if match:
            found[str(path.relative_to(TOP))] = match.group()
    assert not found


def anchors(document: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", document)):
        slug = re.sub(r"[^\w\- ]", "", LINK.sub("", heading).lower()).replace(" ", "-")
        repeats = (f"{slug}-{number}" for number in itertools.count(1))
        found.add(slug if slug not in found else next(name for name in repeats if name not in found))
    return found


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead to no file, or to no heading of a Markdown file."""
    links = LINK.findall(FENCE.sub("", page.read_text()))
    return [f"{target}#{anchor}" for target, anchor in links if not leads_somewhere(page, target, anchor)]


def leads_somewhere(page: Path, target: str, anchor: str) -> bool:
    document = page.parent / target if target else page
    if anchor and document.suffix == ".md" and document.is_file():
        return anchor in anchors(document.read_text())
    return document.exists()


def test_links_between_documents_lead_somewhere() -> None:
    broken = {str(page.relative_to(TOP)): broken_links(page) for page in tracked("*.md")}
    assert not {page: links for page, links in broken.items() if links}


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# What `it` says\n```sh\n# no heading\n```\n## Why?\n## Why?\n")
    page, lead = tmp_path / "page.md", ["other.md#what-it-says", "other.md#why", "other.md#why-1", "#here", "other.md#"]
    lost = ["gone.md#", "other.md#no-heading", "#there"]
    page.write_text("# Here\n" + "".join(f"[to]({target})\n" for target in [*lead, *lost]))
    assert broken_links(page) == lost


def test_no_document_puts_a_password_on_a_command_line() -> None:
    commands = {
        str(path.relative_to(TOP)): [
            text for language, text in FENCE.findall(path.read_text()) if language in ("", "sh", "bash", "console")
        ]
        for path in tracked("*.md", "charts/*/templates/NOTES.txt")
    }
    assert commands["README.md"]
    assert not {
        f"{path}: {match.group()}" for path, texts in commands.items() for match in PASSWORD.finditer("\n".join(texts))
    }


@pytest.mark.parametrize(
    "command",
    [
        "helm install x charts/x --set amqp.url=$URL",
        "helm install x charts/x --set-string=image.tag=1,amqp.url=$URL",
        "AMQP_URL=amqps://east:PASSWORD@broker:5671/slicebus slicebus doctor",
        "kubectl create secret generic slicebus-amqp --from-literal=url=$URL",
        "rabbitmqctl add_user east PASSWORD",
        "curl --password=PASSWORD broker",
    ],
)
def test_a_password_on_a_command_line_is_found(command: str) -> None:
    assert PASSWORD.search(command)


def test_the_reference_names_every_annotation_and_reason() -> None:
    text = (TOP / "docs" / "reference.md").read_text()
    names: set[str] = {*DeadReason}
    names |= {value for value in vars(kueue).values() if isinstance(value, str) and value.startswith("slicebus.dev/")}
    assert not {name for name in names if f"`{name}`" not in text}


def locked(lock: str) -> dict[str, str]:
    """The version of each distribution that a lock names."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (TOP / lock).read_text(), re.MULTILINE))


def normalized(distribution: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def declared(*, extras: bool = False) -> set[str]:
    """The distributions that pyproject.toml depends on, outside its groups."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    optional = itertools.chain(*project["optional-dependencies"].values()) if extras else ()
    return {normalized(re.split(r"[^A-Za-z0-9._-]", name)[0]) for name in (*project["dependencies"], *optional)}


def imported() -> dict[str, str]:
    """The modules of others that are imported anywhere in the roots, also inside functions, with a file that does."""
    found = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    imports = [alias.name for alias in names]
                case ast.ImportFrom(module=str(module), level=0):
                    imports = [module]
                case _:
                    continue
            found |= dict.fromkeys((name.partition(".")[0] for name in imports), str(path.relative_to(TOP)))
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names | {"slicebus"}}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    owners = {name: {*map(normalized, found)} for name, found in packages_distributions().items()}
    files, every = imported(), declared(extras=True)
    by_module = {name: owners.get(name, set()) & every for name in files.keys() - OF_A_DEPENDENCY.keys()}
    assert not {name: files[name] for name, found in by_module.items() if not found}, "imported, not declared"
    assert not every - set().union(*by_module.values()), "declared, imported nowhere"
    assert not OF_A_DEPENDENCY.keys() - files.keys()


def test_the_images_install_what_the_package_requires_in_the_versions_that_are_tested() -> None:
    agent, manager, tests = map(locked, ("docker/requirements.lock", "docker/manager.lock", "requirements.lock"))
    assert declared() <= agent.keys()
    assert {"sqlalchemy", "alembic", "psycopg"} <= manager.keys() - agent.keys(), "of the extra ledger"
    assert "pytest" not in manager
    assert agent.items() <= manager.items() <= tests.items(), "run make lock"


@pytest.mark.parametrize("role", ["agent", "manager"])
def test_an_image_copies_what_is_there_and_is_not_root(role: str) -> None:
    text = (TOP / "docker" / f"{role}.Dockerfile").read_text()
    sources = [
        source for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for source in line.split()[:-1]
    ]
    assert sources
    assert all((TOP / source).exists() for source in sources)
    assert "USER 65532:65532" in text
    assert f'CMD ["{role}"]' in text


@pytest.mark.parametrize("role", ["agent", "manager"])
def test_an_image_takes_its_base_by_digest_and_the_rest_by_hash(role: str) -> None:
    text = (TOP / "docker" / f"{role}.Dockerfile").read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert text.index("ARG BASE=") < text.index("FROM ")
    for command in re.findall(r"\bpip (?:install|wheel|download)\b[^&]*", text.replace("\\\n", "")):
        from_lock = "--require-hashes" in command
        from_here = "--no-deps" in command and ("--no-index" in command or "--no-build-isolation" in command)
        assert from_lock or from_here, command


def test_the_images_differ_only_in_their_command_and_the_extra_of_the_ledger() -> None:
    agent, manager = (
        [line for line in (TOP / "docker" / f"{role}.Dockerfile").read_text().splitlines() if not line.startswith("#")]
        for role in ("agent", "manager")
    )
    same = [line.replace("docker/manager.lock", "docker/requirements.lock") for line in manager]
    assert same != manager
    assert [(one, other) for one, other in zip(agent, same, strict=True) if one != other] == [
        ('CMD ["agent"]', 'CMD ["manager"]')
    ]


def test_an_image_is_built_with_what_the_project_is_built_with() -> None:
    build, tests = locked("docker/build.lock"), locked("requirements.lock")
    requires = tomllib.loads((TOP / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {normalized(re.split(r"[^A-Za-z0-9._-]", name)[0]) for name in requires} <= build.keys()
    both = build.keys() & tests.keys()
    assert {name: build[name] for name in both} == {name: tests[name] for name in both}, "run make lock"
