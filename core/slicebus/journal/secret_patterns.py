"""Recognizes what looks like a secret: names, assignments in texts, and the forms of known tokens.

It is written here and not taken from a library: see docs/decisions/0033. `tests/unit/journal/secrets.py` is the corpus
that shows what it recognizes.
"""

import re
from collections.abc import Callable
from enum import Enum, auto

Mark = Callable[[str], str]
MARKS = re.compile(r"(\(redacted(?::[0-9a-f]{16})?\))")
"""Matches what stands in the place of a secret."""

_WORDS = (
    r"passw|passphrase|pass[-_]?key|token|secret|credential|(?:api|access|private|account|signing|encryption)[-_]?key"
    r"|key[-_]data|connection[-_]?string|dockerconfigjson|webhook[-_]?url|bearer"
)
_NAME = re.compile(_WORDS, re.IGNORECASE)
_WHOLE_NAMES = frozenset({"auth", "pwd", "pgpass", "authorization", "cookie", "set-cookie"})
_HARMLESS_ENDS = (
    *("name", "file", "path", "dir", "ref", "kind", "type", "count", "limit", "enabled", "seconds", "ttl", "length"),
    *("endpoint", "policy", "version", "tokens", "mount"),
)
"""The last words of names that say where a secret is, or something about it."""
_LONGEST = 256 * 1024
"""A longer text that may have a secret is replaced as a whole: nobody reads it, and searching it takes too long."""
_MOST_PASSES = 8
"""A mark may part what was one word, and let the rest be seen as a secret. The second pass nearly always finds none."""
_HARMLESS_VALUE = re.compile(
    r"true|false|null|none|yes|no|-?[0-9.]{1,9}|[|>][-+]?|\$\(?\{?[\w.:-]+\}?\)?", re.IGNORECASE
)
"""Switches, small numbers, the start of a block in YAML, and references to variables."""

_URL = re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]{0,31}://)(?P<secret>[^/?#\s]{1,2000})(?=@)", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"""(?<![\w.-])(?P<name>[\w.-]{{0,64}}?(?:{_WORDS}|\bauth\b|\bpwd\b|\bpgpass\b|\bcookie\b)[\w.-]{{0,64}})["']?"""
    r"""(?P<sign>[ \t]{0,8}(?::=|=>|=|:)[ \t]{0,8}|(?<=\w)[ \t]{1,8}(?=\S))"""
    r"""(?P<quote>["']?)(?P<secret>(?:bearer|basic)\s{1,8}[^\s"']{1,8000}|[^\s"',;&|)}\]]{1,8000})""",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?P<keep>(?:^|\s)(?:-u|--user|--login)[= ]\s{0,8}[^\s:]{1,200}:)(?P<secret>\S{1,2000})")
_SCHEME = re.compile(r"(?P<keep>\b(?:bearer|basic)\s{1,8})(?P<secret>[\w+/=.~-]{8,8000})", re.IGNORECASE)
_HOOK = re.compile(r"(?P<keep>hooks\.slack\.com/(?:services|workflows)/)(?P<secret>[\w/]{8,200})")
_TOKENS = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
    r"|\bLS0tLS1CRUdJTi[\w+/=]{20,}"  # base64 of `-----BEGIN`
    r"|\beyJ[\w+/=-]{16,}(?:\.[\w-]+){0,2}"  # base64 of `{"`: JSON Web Tokens, and JSON such as a dockerconfig
    r"|\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}|\bxox[abeprs]-[\w-]{10,}"
    r"|\bAIza[\w-]{35}|\bya29\.[\w-]{20,}|\b[rs]k_(?:live|test)_\w{16,}|\bsk-[\w-]{20,}|\bnpm_\w{30,}|\bhf_\w{30,}"
    r"|\bpypi-[\w-]{30,}|\bdckr_pat_[\w-]{20,}|\bdop_v1_\w{30,}|\bhv[sb]\.[\w-]{20,}|\bSG\.[\w-]{16,}\.[\w-]{16,}",
    re.DOTALL,
)
_ANY = re.compile(
    rf"{_WORDS}|\bauth\b|\bpwd\b|\bpgpass\b|\bcookie\b|://[^/?#\s]{{1,2000}}@|\bbasic\s|(?:-u|--user|--login)[= ]"
    r"|hooks\.slack|-----BEGIN|LS0tLS1CRUdJTi|eyJ|AKIA|ASIA|AROA|AIDA|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|AIza"
    r"|ya29\.|[rs]k_|sk-|npm_|hf_|pypi-|dckr_pat|dop_v1|hv[sb]\.|SG\.",
    re.IGNORECASE,
)

_TELLING = re.compile(
    rb"(?:token|secret|credential)[\w./-]*+"
    rb'(?!"(?:[}\]]|,\{|:[{\[tfn0-9-]|,"(?:secret|mountpath|configmap|persistentvolumeclaim|emptydir|projected|csi)":))'
)
"""These words are in the names of volumes, of their Secrets and of fields that hold no text. There they give nothing
away: an object, a list or a number follows, or the end."""

_ALIKE = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ123456789abcdef", b"000000ghijklmnopqrstuvwxyz000000000000000")


class Hint(Enum):
    """Says what the shape of JSON tells of secrets in it."""

    NONE = auto()
    WORDS = auto()
    """Words that are also in names that give nothing away."""
    SOME = auto()


def shape(encoded: bytes) -> bytes:
    """JSON in small letters, with one sign for all hexadecimal digits: objects that differ by UIDs, versions and times
    have one shape. Whatever the JSON contains, its shape contains the shape of that."""
    return encoded.translate(_ALIKE)


_WORD_SHAPES = tuple(map(shape, (b"token", b"secret", b"credential")))
_PART_SHAPES = tuple(
    shape(part)
    for part in (
        *(b"pass", b"connection", b"dockerconfig", b"hook", b"bearer", b"basic", b"auth", b"pwd", b"cookie", b"://"),
        *(b'"env"', b"-u ", b"-u=", b"--", b"ls0tls1c", b"eyj", b"akia", b"asia", b"aroa", b"aida", b"glpat-", b"xox"),
        *(b"aiza", b"ya29.", b"sk-", b"pypi-", b"hvs.", b"hvb.", b"sg."),
    )
)
_PART_SHAPES_WITH = {
    b"_": tuple(map(shape, (b"gh", b"github_pat_", b"k_live_", b"k_test_", b"npm_", b"hf_", b"dckr_pat_", b"dop_v1_"))),
    b"\\": tuple(map(shape, (b"\\u", b'env\\"'))),
}
"""Every JSON with a secret has one of these, and looking for them costs a tenth of looking for secrets. Some come only
with a character that most JSON lacks."""
_KEY, _ONLY_KEY = shape(b"key"), shape(b'"key"')


def hint(shape: bytes) -> Hint:
    """What a shape of JSON tells of secrets in it. JSON with escapes may spell anything."""
    if shape.count(_KEY) != shape.count(_ONLY_KEY):
        return Hint.SOME  # A part of a name. By itself it names the key of something.
    if any(sign in shape and any(part in shape for part in parts) for sign, parts in _PART_SHAPES_WITH.items()):
        return Hint.SOME
    if any(part in shape for part in _PART_SHAPES):
        return Hint.SOME
    return Hint.WORDS if any(word in shape for word in _WORD_SHAPES) else Hint.NONE


def has_telling_words(encoded: bytes) -> bool:
    """Whether one of the words in this JSON is not in a name that gives nothing away."""
    return _TELLING.search(encoded.lower()) is not None


def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret: `DB_PASSWORD`, `api-key`. A name such as `secretName` refers to one."""
    if not _NAME.search(name):
        return name.lower() in _WHOLE_NAMES
    return not name.lower().endswith(_HARMLESS_ENDS)


def is_secret_option(argument: str) -> bool:
    """Whether the argument after this one is a secret: `--password`."""
    return argument[:1] == "-" and "=" not in argument and is_secret_name(argument.lstrip("-"))


def with_marks(text: str, mark: Mark) -> str:
    """The text with a mark in place of every secret. Marks stay."""
    if not _ANY.search(text):
        return text
    if len(text) > _LONGEST:
        return mark(text)
    for _ in range(_MOST_PASSES):
        parts = MARKS.split(text)
        before, text = text, "".join(part if at % 2 else _with_marks(part, mark) for at, part in enumerate(parts))
        if text == before:
            break
    return text


def _with_marks(text: str, mark: Mark) -> str:
    text = _TOKENS.sub(lambda match: mark(match[0]), text)
    for pattern in (_URL, _HOOK, _LOGIN):
        text = pattern.sub(lambda match: match["keep"] + mark(match["secret"]), text)
    text = _ASSIGNED.sub(lambda match: _assigned(match, mark), text)
    return _SCHEME.sub(lambda match: match["keep"] + mark(match["secret"]), text)


def _assigned(match: re.Match[str], mark: Mark) -> str:
    name, secret = match["name"], match["secret"]
    is_option = name.startswith("-")
    if not match["sign"].strip() and not is_option:
        return match[0]  # Words of a sentence.
    if not is_secret_name(name.lstrip("-").rpartition(".")[2] or name) or _HARMLESS_VALUE.fullmatch(secret):
        return match[0]
    return match[0][: match.start("secret") - match.start()] + mark(secret)
