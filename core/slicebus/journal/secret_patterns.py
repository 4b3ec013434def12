"""Recognizes what looks like a secret: names, assignments in texts, and the forms of known tokens.

It is written here and not taken from a library: see docs/decisions/0033. `tests/unit/journal/secrets.py` is the corpus
that shows what it recognizes.
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import lru_cache, partial

from slicebus.journal.token_forms import FORMS

Mark = Callable[[str], str]
MARKS = re.compile(r"(\(redacted(?::[0-9a-f]{16})?\))")
"""Matches what stands in the place of a secret."""

_KEYS = (
    "api|access|private|account|signing|encryption|ssh|licen[cs]e|master|shared|storage|hmac|auth|client|subscription"
    "|functions|consumer|session|instrumentation"
)
"""A key of these opens something."""
_WORDS = (
    rf"passw|passphrase|pass[-_]?key|passcode|token|secret|credential|signature|(?:{_KEYS})[-_.]?key"
    r"|requirepass|masterauth"
    r"|key[-_]data|connection[-_]?string|dockerconfigjson|webhook[-_]?url|bearer"
)
_NAME = re.compile(_WORDS, re.IGNORECASE)
_WHOLE_NAMES = frozenset(
    {"authorization", "cookie", "set-cookie", "sig", "tls.key", "id_rsa", "id_ecdsa", "id_ed25519"}
)
_LAST_WORDS = frozenset({"auth", "pass", "pgpass", "pwd", "pw", "pat", "jwt", "otp", "creds"})
"""Names that end with one of these are secret. Within a word they mean something else: `bypass`."""
_LAST = rf"(?:(?<![A-Za-z0-9])|(?-i:(?<=[a-z0-9])(?=[A-Z])))(?:{'|'.join(sorted(_LAST_WORDS))})(?![A-Za-z0-9])"
_LAST_WORD = re.compile(rf"{_LAST}[-_.]?$", re.IGNORECASE)
_HARMLESS_ENDS = (
    *("name", "file", "path", "dir", "ref", "kind", "type", "count", "limit", "enabled", "seconds", "ttl", "length"),
    *("endpoint", "policy", "version", "tokens", "mount"),
)
"""The last words of names that say where a secret is, or something about it."""
_ENVIRONMENTS = (
    r"(?:(?:extra|additional|common|custom|default|global|head|worker|container|pod)[-_]?)?"
    r"(?:envs?|env[-_]?vars|environ|environment(?:[-_]?variables)?)"
)
"""Names of what has variables and their values."""
_ENVIRONMENT = re.compile(_ENVIRONMENTS, re.IGNORECASE)
_LONGEST = 256 * 1024
"""A longer text that may have a secret is replaced as a whole: nobody reads it, and searching it takes too long."""
_MOST_PASSES = 8
"""A mark may part what was one word, and let the rest be seen as a secret. The second pass nearly always finds none."""
_HARMLESS_VALUE = re.compile(
    r"true|false|null|none|yes|no|-?[0-9.]{1,9}|[|>][-+]?|\$\(?\{?[\w.:-]+\}?\)?", re.IGNORECASE
)
"""Switches, small numbers, the start of a block in YAML, and references to variables."""

_VALUE = (
    r"""(?:(?P<quote>\\{0,3}["'])(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\\\n])){1,8000})"""
    r"""|(?P<plain>(?:bearer|basic)\s{1,8}[^\s"']{1,8000}|[^\s"',;&|)}\]\\]{1,8000}))"""
)
"""A value, in quotes that may be those of a text within a text, or up to where a plain one ends."""
_URL = re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]{0,31}://)(?P<secret>[^/?#\s]{1,2000})(?=@)", re.IGNORECASE)
_QUERY = re.compile(
    r"(?P<keep>[?&;](?:sig|key|code|awsaccesskeyid|x-(?:amz|goog)-(?:credential|signature))=)"
    r"""(?P<secret>[^\s"'&;<>\\]{1,8000})""",
    re.IGNORECASE,
)
"""The signature of a signed URL, and keys that are part of one."""
_ASSIGNED = re.compile(
    rf"""(?<![\w.-])(?P<name>[\w.-]{{0,64}}?(?:{_WORDS}|\bcookie\b|{_LAST})[\w.-]{{0,64}})\\{{0,3}}["']?\]?"""
    rf"""(?P<sign>[ \t]{{0,8}}(?::=|=>|=|:)[ \t]{{0,8}}|(?<=\w)[ \t]{{1,8}}(?=\S)){_VALUE}""",
    re.IGNORECASE,
)
_LINE = re.compile(
    rf"""^(?P<keep>[ \t]*(?:- )?["']?(?P<name>[\w.-]{{0,64}}?(?:{_WORDS}|{_LAST})[\w.-]{{0,64}})["']?:[ \t]{{1,8}})"""
    r"""(?P<secret>[^\s"'][^\n]*[ \t][^\n]*\S)""",
    re.IGNORECASE | re.MULTILINE,
)
"""A line of YAML whose value has spaces."""
_BLOCK = re.compile(
    rf"""^(?P<keep>(?P<indent>[ ]*)(?:- )?["']?"""
    rf"""(?P<name>(?:{_ENVIRONMENTS})|[\w.-]{{0,64}}?(?:{_WORDS}|{_LAST})[\w.-]{{0,64}})"""
    r"""["']?:[ \t]*(?P<text>[|>][-+0-9]*)?[ \t]*\n)(?P<lines>(?:(?P=indent)(?:[ ]|- )[^\n]*(?:\n|\Z)|[ \t]*\n)+)""",
    re.IGNORECASE | re.MULTILINE,
)
"""A block of YAML: variables, or a text under the name of a secret."""
_HAS_NAME = re.compile(r":(?:\s|$)")
"""A line of YAML with a name of its own: what is above it has no text."""
_FLOW = re.compile(
    rf"""(?P<keep>\b(?:{_ENVIRONMENTS})\\{{0,3}}["']?\s{{0,8}}[:=]\s{{0,8}})"""
    r"""(?P<entries>\{[^{}\n]{1,8000}|\[[^\]\n]{1,8000})""",
    re.IGNORECASE,
)
_ENTRY = re.compile(
    r"""(?P<keep>(?:^|[,{])\s{0,8}(?:- )?\\{0,3}["']?(?P<name>[\w./-]{1,256})\\{0,3}["']?\s{0,8}[:=]\s{0,8})"""
    + _VALUE.replace(r"""[^\s"',;&|)}\]\\]""", r"""[^\s"',}\\]"""),
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"""(?P<keep>\b(?:(?:proxy-)?authorization|(?:set-)?cookie)\\{0,3}["']?[ \t]{0,8}:[ \t]{0,8}\\{0,3}["']?)"""
    r"""(?P<secret>[^"'\n\\]{1,8000})""",
    re.IGNORECASE,
)
_ELEMENT = re.compile(
    rf"(?P<keep><(?P<name>[\w.:-]{{0,64}}?(?:{_WORDS}|{_LAST})[\w.-]{{0,64}})(?: [^<>]{{0,200}})?>)"
    r"(?P<secret>[^<>]{1,8000})(?=</)",
    re.IGNORECASE,
)
_PROPERTY = re.compile(
    rf"(?P<keep><name>(?P<name>[^<>]{{0,128}}?(?:{_WORDS}|{_LAST})[^<>]{{0,128}})</name>\s{{0,80}}<value>)"
    r"(?P<secret>[^<>]{1,8000})(?=</)",
    re.IGNORECASE,
)
"""A setting of Hadoop."""
_SET = re.compile(
    rf"""(?P<keep>(?:\b(?:set|add)\s{{1,8}}|\b(?:setdefault|putenv|setenv)\(\\{{0,3}}["']|--set[= ]\s{{0,8}})"""
    rf"""(?P<name>[\w./:-]{{0,128}}?(?:{_WORDS}|{_LAST})[\w./:-]{{0,128}})"""
    r"""(?:\s{1,8}|=|\\{0,3}["'],\s{0,8}\\{0,3}["']))(?P<secret>[^\s"'=,)\\][^\s"'\\]{0,8000})""",
    re.IGNORECASE,
)
"""What sets a name: `aws configure set`, `os.environ.setdefault`."""
_PLACES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<keep>(?:^|\s)(?:-u|-U|--user|--proxy-user|--login)[= ]\s{0,8}[^\s:]{1,200}:)(?P<secret>\S{1,2000})",
        r"(?P<keep>\b(?i:bearer|basic)\s{1,8})(?P<secret>[\w+/=.~-]{8,8000})",
        r"(?P<keep>hooks\.slack\.com/(?:services|workflows|triggers)/)(?P<secret>[\w/-]{8,200})",
        r"(?P<keep>hooks\.zapier\.com/hooks/catch/)(?P<secret>[\w/-]{8,200})",
        r"(?P<keep>discord(?:app)?\.com/api/webhooks/)(?P<secret>[\w/-]{8,200})",
        r"(?P<keep>webhook\.office\.com/webhookb2/)(?P<secret>[\w@/-]{8,400})",
        r"(?P<keep>api\.telegram\.org/bot)(?P<secret>[\w:-]{8,200})",
        r"(?P<keep>\bmachine\s{1,8}\S{1,200}\s{1,8}login\s{1,8}\S{1,200}\s{1,8}password\s{1,8})(?P<secret>\S{1,2000})",
        r"(?P<keep>\b(?:mysql|mysqladmin|mysqldump|mariadb|sshpass)\b"
        r"[^\n|;&]{0,400}?\s-p ?)(?P<secret>[^\s-]\S{0,2000})",
        r"(?P<keep>\b(?:mongo|mongosh|mongodump|mongorestore|mongoimport|mongoexport)\b"
        r"[^\n|;&]{0,400}?\s-p )(?P<secret>[^\s-]\S{0,2000})",
        r"(?P<keep>\b(?:sqlcmd|bcp|mosquitto_pub|mosquitto_sub|zip|unzip)\b"
        r"[^\n|;&]{0,400}?\s-P ?)(?P<secret>[^\s-]\S{0,2000})",
        r"(?P<keep>\bldap\w{1,16}\b[^\n|;&]{0,400}?\s-w ?)(?P<secret>[^\s-]\S{0,2000})",
        r"(?P<keep>\bopenssl\b[^\n|;&]{0,400}?\s(?:-k |-pass(?:in|out)? pass:))(?P<secret>[^\s-]\S{0,2000})",
        r"(?P<keep>\bredis-cli\b[^\n|;&]{0,400}?\s(?:-a ?|(?i:auth) ))(?P<secret>[^\s-]\S{0,2000})",
        r"(?P<keep>(?m:^)[ \t]{0,8}(?:requirepass|masterauth)[ \t]{1,8})(?P<secret>\S{1,2000})",
        r"(?P<keep>(?:^|\s)(?:-e|--env)[= ]\s{0,8}\w{1,256}=)(?P<secret>\S{1,2000})",
        r"(?P<keep>\b[\w.-]{1,64}:)(?P<secret>[^\s@:/]{1,200})(?=@(?:tcp|unix)\()",
        r"(?P<keep>\blogin\b[^\n|;&]{0,400}?\s-p )(?P<secret>[^\s-]\S{0,2000})",
        r"(?P<keep>--from-literal[= ][\w.-]{1,256}=)(?P<secret>\S{1,2000})",
        r"(?P<keep>\b(?:wandb|vault) login (?:--?\S{1,200} ){0,8})(?P<secret>\w\S{1,2000})",
    )
)
"""Places that are always a secret's."""
_TOKENS = re.compile(
    "|".join(rf"{chr(92) + 'b' if begin[0].isalnum() else ''}{re.escape(begin)}{rest}" for begin, rest in FORMS),
    re.DOTALL,
)
_ANY = re.compile(
    rf"{_WORDS}|pass|pwd|pw|jwt|otp|creds|env|auth|cookie|[?&;](?:sig|key|code)=|://[^/?#\s]{{1,2000}}@|\bbasic\s"
    r"|\s-[paUwke] ?|(?:-u|--user|--login|--env)[= ]|hooks\.|api/webhooks|webhook|api\.telegram|--from-literal|\blogin "
    r"|id_rsa|id_ecdsa|id_ed25519|tls\.key|@(?:tcp|unix)\(|pat\b|" + "|".join(re.escape(begin) for begin, _ in FORMS),
    re.IGNORECASE,
)

_TELLING = re.compile(
    rb"(?:token|secret|credential)[\w./-]*+"
    rb'(?!"(?:[}\]]|,\{|:[tfn0-9-]|:\[[{\]]|:\{(?![^{}]*"(?:value|plain|plaintext|literal|inline)":)|,"(?:secret|mountpath|configmap|persistentvolumeclaim|emptydir|projected|csi)":))'
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
_PARTS = (
    *("pass", "connection", "dockerconfig", "hook", "bearer", "basic", "auth", "pwd", "cookie", "signature", "jwt"),
    *('otp"', "otp=", "otp:", 'pw"', "pw=", "pw:", 'creds"', "creds=", "creds:", '"sig"', "sig=", "code="),
    *("://", '"-a', '"-p', '"-w', '"-k', '"-e', "-u ", "-u=", "--", " -", "machine", "api.telegram", "login"),
    *('env"', 'envs"', "env:", "envs:", "env_vars", "env-vars", "envvars", 'environ"', 'environment"', "environment:"),
    *("requirepass", "masterauth", "id_rsa", "id_ecdsa", "id_ed25519", "tls.key", "@tcp(", "@unix("),
    *('pat"', "pat=", "pat:", "pat'", 'pat\\"'),
    *("environment_variables", "environmentvariables"),
    *(begin for begin, _ in FORMS),
)
"""Every text with a secret has one of these, or one of the words above."""
_ESCAPED = ("\\u", *(f'{part}\\"' for part in ("env", "envs", "environ", "environment", "otp", "pw", "pat", "creds")))
_SIGNS = shape(rb'\ nv gl $ = xox pw tp k- hv creds pi _ si1 ki1 key- -- "- p- 111.').split()
"""What several of them have and most JSON lacks."""


def _by_sign(parts: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """The parts by the first sign in each, and by none."""
    by_sign: dict[bytes, list[bytes]] = {sign: [] for sign in (*_SIGNS, b"")}
    for part in parts:
        by_sign[next(sign for sign in by_sign if sign in part)].append(part)
    return by_sign


_PART_SHAPES = _by_sign({shape(part.encode()) for part in (*_PARTS, *_ESCAPED)})
"""Every JSON with a secret has one of these, and looking for them costs a tenth of looking for secrets. Most JSON lacks
a sign that several of them have, and is searched for that alone."""
_KEY, _ONLY_KEY = shape(b"key"), shape(b'"key"')


def hint(shape: bytes) -> Hint:
    """What a shape of JSON tells of secrets in it. JSON with escapes may spell anything."""
    if shape.count(_KEY) != shape.count(_ONLY_KEY):
        return Hint.SOME  # A part of a name. By itself it names the key of something.
    for sign, parts in _PART_SHAPES.items():
        if sign in shape:
            for part in parts:
                if part in shape:
                    return Hint.SOME
    return Hint.WORDS if any(word in shape for word in _WORD_SHAPES) else Hint.NONE


def has_telling_words(encoded: bytes) -> bool:
    """Whether one of the words in this JSON is not in a name that gives nothing away."""
    return _TELLING.search(encoded.lower()) is not None


def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret: `DB_PASSWORD`, `api-key`. A name such as `secretName` refers to one."""
    return _is_known_name(name) if len(name) <= _LONGEST_KNOWN else _is_secret_name(name)


def _is_secret_name(name: str) -> bool:
    if _LAST_WORD.search(name):
        return True
    if not _NAME.search(name):
        return name.lower() in _WHOLE_NAMES
    return not name.lower().endswith(_HARMLESS_ENDS)


_is_known_name = lru_cache(4096)(_is_secret_name)
_LONGEST_KNOWN = 128


def is_environment_name(name: str) -> bool:
    """Whether a value of this name has variables and their values: `env_vars`."""
    return len(name) <= _LONGEST_KNOWN and _is_environment(name)


@lru_cache(4096)
def _is_environment(name: str) -> bool:
    return _ENVIRONMENT.fullmatch(name) is not None


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
        before, text = text, _with_marks(text, mark)
        if text == before:
            break
    return text


def _with_marks(text: str, mark: Mark) -> str:
    if "\n" in text:
        text = _BLOCK.sub(partial(_block, mark=mark), text)
        text = _LINE.sub(partial(_named, mark=mark), text)
    for pattern, change in _SEARCHES:
        marked = partial(change, mark=mark)
        parts = MARKS.split(text)
        text = "".join(part if at % 2 else pattern.sub(marked, part) for at, part in enumerate(parts))
    return text


def _named(match: re.Match[str], mark: Mark) -> str:
    """A match whose `secret` is one; where it has a name, if that says so."""
    name, secret = match.groupdict().get("name"), match["secret"]
    if (name is not None and not is_secret_name(name)) or _is_harmless(secret):
        return match[0]
    return match["keep"] + mark(secret)


def _assigned(match: re.Match[str], mark: Mark) -> str:
    name = match["name"]
    is_option = name.startswith("-")
    if not match["sign"].strip() and not is_option:
        return match[0]  # Words of a sentence.
    whole = name.lstrip("-")
    if not (is_secret_name(whole.rpartition(".")[2] or name) or is_secret_name(whole)):
        return match[0]
    return _with_value(match, mark)


def _with_value(match: re.Match[str], mark: Mark) -> str:
    """A match with a mark in place of its value, unless that is harmless."""
    group = "plain" if match["plain"] is not None else "quoted"
    secret = match[group]
    if _is_harmless(secret):
        return match[0]
    return match[0][: match.start(group) - match.start()] + mark(secret) + match[0][match.end(group) - match.start() :]


def _block(match: re.Match[str], mark: Mark) -> str:
    """A block of YAML without the values of its variables, or without its text."""
    lines = match["lines"].split("\n")
    if match["text"] is None and not is_environment_name(match["name"]):
        is_text = is_secret_name(match["name"]) and not any(_HAS_NAME.search(line) for line in lines)
        return match["keep"] + "\n".join(_line(line, mark) for line in lines) if is_text else match[0]
    if match["text"] is None:
        return match["keep"] + "\n".join(
            _entries(line, mark) if _ENTRY.search(line) or line.rstrip().endswith(":") else _line(line, mark)
            for line in lines
        )
    if not is_secret_name(match["name"]):
        return match[0]
    return match["keep"] + "\n".join(_line(line, mark) for line in lines)


def _line(line: str, mark: Mark) -> str:
    text = line.strip()
    return line.replace(text, mark(text)) if text and not MARKS.fullmatch(text) else line


def _entries(text: str, mark: Mark) -> str:
    """Variables and their values, without the values."""

    def entry(match: re.Match[str]) -> str:
        return match[0] if match["name"] in ("name", "key") else _with_value(match, mark)

    return _ENTRY.sub(entry, text)


def _token(match: re.Match[str], mark: Mark) -> str:
    return mark(match[0])


def _flow(match: re.Match[str], mark: Mark) -> str:
    return match["keep"] + _entries(match["entries"], mark)


def _is_harmless(secret: str) -> bool:
    return _HARMLESS_VALUE.fullmatch(secret) is not None or MARKS.search(secret) is not None


_SEARCHES: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = (
    (_TOKENS, _token),
    (_FLOW, _flow),
    *((pattern, _named) for pattern in (_URL, _HEADER, *_PLACES, _QUERY, _ELEMENT, _PROPERTY, _SET)),
    (_ASSIGNED, _assigned),
)
"""What is looked for, one after the other, between the marks."""
