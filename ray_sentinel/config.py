"""Configuration: one TOML file, ``RAY_SENTINEL_*`` variables, keyword arguments, in rising order.

Every section is a record; an unknown key or a value of the wrong kind is an error that names the
key, where it was set and the nearest known key. ``RAY_SENTINEL_HANG__SILENCE_SECONDS=20`` sets
``silence_seconds`` of ``[hang]``: two underscores stand for the dot. ``RAY_SENTINEL_CONFIG`` names
the file; keys at the top level are set by one name, such as ``RAY_SENTINEL_LOG_DIR``.

Rules, collectors and exporters declare their own settings, next to their code; the tables
``[rules."NAME"]``, ``[collectors.NAME]`` and ``[exporters.NAME]`` are kept raw here and checked
where they are used, by ``convert``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.errors import ConfigError

ENV_PREFIX = "RAY_SENTINEL_"
# Set by us for our own processes, or read elsewhere: no settings.
ENV_RESERVED = frozenset(
    {"CONFIG", "TRUSTED_UIDS", "JOB", "ATTEMPT", "ROLE", "RECORD_DIR", "AUTOSTEP", "FAULT", "DEMO"}
    | {"CHECKPOINT", "STEP", "BAD_NODES", "FAMILY", "TOKEN", "TOKEN_FILE"}
    | {"LOG_LEVEL", "LOG_FILE"}
)

MAX_CONFIG = 16 << 20
"""Most bytes of a configuration file; a longer one is refused."""
_MOST_DOTS = 100
"""Most dots of a key in a configuration file."""
_BETWEEN_KEYS = str.maketrans("=,[]{}", "\n" * 6)
"""Turns the characters that end or begin a key into line breaks."""

T = TypeVar("T")

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
"""A TCP port; 0 takes any that is free."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Interval = Annotated[float, msgspec.Meta(ge=0.01, le=1e9)]
"""Seconds between two runs of something that repeats; 0 would be a busy loop."""
Amount = Annotated[int, msgspec.Meta(ge=0)]
MemoryBytes = Annotated[int, msgspec.Meta(ge=1 << 20)]
Factor = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections: unknown keys are refused."""


class AgentConfig(Section, frozen=True):
    """The agent on each node."""

    snapshot_interval: Interval = 1.0
    port: Port = 9400
    public: bool = False
    """Whether :9400 may listen on a public address."""
    web_config_file: str = ""
    """Path of the file with TLS and authentication for :9400, in the format of Prometheus'
    exporters; absolute, and the same on every node."""
    idle_release_seconds: Seconds = 600.0
    """Seconds without a rank after which the agent leaves a node, so that it can scale down; 0 =
    never."""
    plugin_dir: str = ""
    """Folder of the user's collectors; "" is ``<log_dir>/plugins``."""
    memory_bytes: MemoryBytes = 1 << 30
    """Bytes of resident memory that an agent may take; beyond them, ``status`` and an alert say
    so."""


class CoordinatorConfig(Section, frozen=True):
    """The coordinator on the head."""

    reconcile_interval: Interval = 2.0
    tick_interval: Interval = 0.5
    port: Port = 9401
    """Port of the page and its API, on loopback; 0 takes any that is free."""
    reports_per_second: Amount = 500
    """Most reports that are asked for: in a larger cluster, an agent on whose node nothing
    happens reports less often, about every two seconds; 0 = every agent reports each
    ``snapshot_interval``."""
    relays_above: Amount = 256
    """Number of nodes beyond which agents report by way of relays: actors on some of the nodes that
    hand reports on together, as most of what a report costs the coordinator is Ray's call."""
    agents_per_relay: Amount = 64
    """Number of agents that share a relay; 0 = every agent reports to the coordinator itself."""
    lost_snapshots: Amount = 3
    """Number of snapshot intervals without a snapshot after which a node counts as lost."""
    memory_bytes: MemoryBytes = 2 << 30
    """Bytes of resident memory that the coordinator may take; beyond them, less is kept of what
    verdicts do not need, and ``status`` and an alert say so."""
    series_bytes: MemoryBytes = 160 << 20
    """Bytes of that memory for what nodes reported in the last half hour; beyond them, what is
    older than ten minutes is kept less densely, and then the oldest is dropped."""
    log_waiting_bytes: MemoryBytes = 64 << 20
    """Bytes of that memory for events that wait for a slow disk; what exceeds them is missing in
    the event log. A report of eight ranks takes 11 KB, so they hold a minute and a half of 64 such
    nodes, or six seconds of 1,024."""


class HangConfig(Section, frozen=True):
    """When silence becomes a suspicion, and a suspicion a verdict."""

    silence_seconds: Interval = 10.0
    """Shortest silence in ``train``, in seconds, that raises a suspicion."""
    silence_factor: Factor = 3.0
    """How many times the slowest usual step the silence must last, if that is longer than
    ``silence_seconds``."""
    confirm_seconds: Seconds = 2.7
    """Seconds between the first and the last round of stacks."""
    stall_seconds: Seconds = 45.0
    """Seconds of silence of all ranks alike, with nobody to blame, from which on a stall is
    reported."""
    phase_budgets: dict[str, float] = {}
    """Seconds that each phase may take before its silence counts, besides the built-in ones."""


class CaptureConfig(Section, frozen=True):
    """Running tools against suspects."""

    enabled: bool = True
    """Whether anything may be paused, or captured by ``wait_seconds``; harmless looks are always
    taken."""
    deadline: Interval = 60.0
    """Seconds for all intrusive tools on a node together."""
    max_intrusive_per_node: Amount = 1
    """Most processes on a node that intrusive tools may stop at one time; 0 = none ever."""
    max_intrusive: Amount = 16
    """Most processes in the whole cluster that intrusive tools may stop at one time."""
    max_stacks_per_node: Amount = 8
    """Most py-spy processes that run on a node at one time."""
    cooldown_seconds: Seconds = 300.0
    """Seconds between two captures of one incident while it lasts."""
    wait_seconds: Seconds = 0.0
    """Seconds after which, counted from when the job was first seen, everything is captured once; 0
    = off. With ``cuda_gdb``, cuda-gdb is run on every rank then."""
    output_dir: str = ""
    """Folder for bundles instead of ``<log_dir>/incidents``, and for what ``wait_seconds`` captures
    instead of ``<log_dir>/backtraces``."""
    series_seconds: Seconds = 25.0
    """Seconds from a capture until the job's time series are diagnosed for the report: two cycles
    of the collectors, so that the series reach into the hang. 0 = never."""
    native: bool = True
    gdb: bool = False
    cuda_gdb: bool = True

    @property
    def samples_at_once(self) -> int:
        """Most processes on a node that are sampled at one time."""
        return max(1, self.max_stacks_per_node)

    @property
    def intrusive_at_once(self) -> int:
        """``max_intrusive_per_node``; 0 if nothing may be paused."""
        return self.max_intrusive_per_node if self.enabled else 0


class NcclRasConfig(Section, frozen=True):
    """Asking NCCL's RAS service while a case is open."""

    poll: Literal["auto", "always", "never"] = "auto"
    """When RAS is asked: "auto" asks NCCL versions that are known to survive it (2.29.2 and
    later)."""


class StragglersConfig(Section, frozen=True):
    """Looking for slow ranks in jobs that go on."""

    interval_seconds: Seconds = 60.0
    """Seconds between two looks at a job; 0 = never."""
    most_ranks: Amount = 256
    """Most ranks of a job that is looked at: every rank's recorder must be fetched, so larger jobs
    are left out."""


class StorageConfig(Section, frozen=True):
    """What we keep on disk."""

    max_bytes: Amount = 2 << 30
    """Most bytes of ``log_dir``; beyond them, the oldest bundles and logs are removed first."""


class NotifyConfig(Section, frozen=True):
    """Whom to tell of incidents and of what ``ray-sentinel run`` does."""

    webhook: str = ""
    """Addresses that notices are sent to as JSON; several are separated by spaces."""
    apprise: str = ""
    """Addresses of Apprise, such as slack:// and mailto://; several are separated by spaces."""
    command: str = ""
    """Command that gets the same JSON on its standard input."""
    style: str = "auto"
    """Form of the JSON: "json", "slack", or "auto", which is Slack's form for Slack's own
    addresses."""
    events: str = ""
    """Events to notify about, separated by spaces; empty for those that matter."""


class PrometheusConfig(Section, frozen=True):
    """The per-job Prometheus."""

    enabled: bool = False
    binary: str = ""
    port: Port = 9190
    retention: str = "30d"


class ScrapeConfig(Section, frozen=True):
    """How our own Prometheus reads :9400 if that has a ``web_config_file``. All are paths, on
    the coordinator's node, but for the names."""

    ca_file: str = ""
    """Path of the certificates that are trusted; "" for those that the system trusts."""
    server_name: str = ""
    """The name in the agents' certificates, if these do not name the nodes' addresses."""
    cert_file: str = ""
    key_file: str = ""
    """Path of the key of ``cert_file``, a certificate of Prometheus' own for agents that ask for
    one."""
    insecure_skip_verify: bool = False
    """Whether every certificate is trusted."""
    username: str = ""
    password_file: str = ""
    bearer_token_file: str = ""
    """Path of a file with a token, instead of a user's name and password."""


class Config(Section, frozen=True):
    """Everything that can be set."""

    job: str = ""
    log_dir: str = ""
    agent: AgentConfig = AgentConfig()
    coordinator: CoordinatorConfig = CoordinatorConfig()
    hang: HangConfig = HangConfig()
    capture: CaptureConfig = CaptureConfig()
    nccl_ras: NcclRasConfig = NcclRasConfig()
    stragglers: StragglersConfig = StragglersConfig()
    storage: StorageConfig = StorageConfig()
    prometheus: PrometheusConfig = PrometheusConfig()
    scrape: ScrapeConfig = ScrapeConfig()
    notify: NotifyConfig = NotifyConfig()
    rules: dict[str, dict[str, Any]] = {}
    collectors: dict[str, dict[str, Any]] = {}
    exporters: dict[str, dict[str, Any]] = {}

    def directory(self) -> Path:
        """Where our files go: ``log_dir``, else ``~/ray_sentinel/<job>``."""
        if self.log_dir:
            return Path(self.log_dir).expanduser()
        return Path("~/ray_sentinel").expanduser() / (safe_name(self.job) or "default")


def absolute(config: Config, folder: Path) -> Config:
    """``config`` with its relative paths taken from ``folder``: it will be used elsewhere.

    ``~`` stays: it means the home of whoever runs our processes.
    """

    def here(path: str) -> str:
        return path if not path or path.startswith("~") else str(folder / path)

    return msgspec.structs.replace(
        config,
        log_dir=here(config.log_dir),
        agent=msgspec.structs.replace(config.agent, plugin_dir=here(config.agent.plugin_dir)),
        capture=msgspec.structs.replace(config.capture, output_dir=here(config.capture.output_dir)),
    )


def safe_name(text: str) -> str:
    """``text`` as a single file name: other characters than letters, digits, ``._-`` become ``_``.

    >>> safe_name("127.0.0.1:29500/x")
    '127.0.0.1_29500_x'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:100]


def load(
    file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """Read the configuration. ``overrides`` nests as the file does.

    Raises ConfigError, naming the key and where it was set.
    """
    path = file or environ.get(ENV_PREFIX + "CONFIG") or None
    data: dict[str, Any] = {}
    if path is not None:
        data = _read_toml(Path(path))
        convert(data, Config, where=str(path))
    from_env = _from_environ(environ)
    if from_env:
        convert(from_env, Config, where="the environment (RAY_SENTINEL_*)", strict=False)
        data = _merged(data, from_env)
    if overrides:
        convert(dict(overrides), Config, where="the arguments")
        data = _merged(data, dict(overrides))
    return convert(data, Config, where="the configuration", strict=False)


def convert(
    data: Any, kind: type[T], *, where: str, strict: bool = True, beside: Sequence[str] = ()
) -> T:
    """``data`` as a record of ``kind``; ``where`` says in errors where it came from.

    With ``strict=False`` numbers and booleans may be written as text, as in the environment. Errors
    list the keys ``beside``, which somebody else reads, too. Raises ConfigError.
    """
    try:
        made = msgspec.convert(data, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), kind, where, beside)) from None
    for key, text in _texts(data):
        if "\0" in text:
            raise ConfigError(f"{where}: {key}: holds a NUL, which no path and no name can")
    return made


def to_json(config: Config) -> bytes:
    """The configuration as it is sent to another process. Raises ConfigError for a text that is
    none: a variable of the environment may hold any bytes."""
    try:
        return msgspec.json.encode(config)
    except UnicodeEncodeError:
        wrong = next(
            key for key, text in _texts(msgspec.to_builtins(config)) if not _is_unicode(text)
        )
        raise ConfigError(
            f"{wrong} is no UTF-8, and so cannot be sent to other nodes: give it another value"
        ) from None


def _texts(data: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a table of settings, each with its key."""
    if isinstance(data, str):
        yield key, data
    elif isinstance(data, Mapping):
        for name, value in data.items():
            yield from _texts(value, f"{key}.{name}" if key else str(name))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _explain(message: str, kind: Any, where: str, beside: Sequence[str]) -> str:
    path = re.search(r" - at `\$\.?(.*?)`$", message)
    key = path.group(1) if path else ""
    message = message[: path.start()] if path else message
    if unknown := re.search(r"unknown field `(.*)`", message):
        name = unknown.group(1)
        section, known = _section(kind, key)
        import difflib

        full = f"{section}.{name}" if section else name
        if near := difflib.get_close_matches(name, known, 1):
            hint = f"did you mean {near[0]}?" + (f" (beside {', '.join(beside)})" if beside else "")
        elif near := difflib.get_close_matches(full, beside, 1):
            hint = f"did you mean {near[0]}?"
        else:
            hint = f"known here: {', '.join([*sorted(known), *beside])}"
        return f"{where}: unknown key {full}; {hint}"
    return f"{where}: {key or 'value'}: {message}"


def _section(kind: Any, key: str) -> tuple[str, list[str]]:
    for part in filter(None, key.split(".")):
        types = {field.name: field.type for field in msgspec.structs.fields(kind)}
        if part not in types or not isinstance(types[part], type):
            break
        if not issubclass(types[part], msgspec.Struct):
            break
        kind = types[part]
    return key, [field.name for field in msgspec.structs.fields(kind)]


def _read_toml(path: Path) -> dict[str, Any]:
    # Imported here: ``attach()`` waits for this module, and has a file seldom.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    from ray_sentinel.trusted_path import UntrustedPathError, read_trusted

    try:
        data = read_trusted(path.expanduser(), most=MAX_CONFIG).data
        return parse_toml(data, tomllib)
    except UntrustedPathError as error:
        raise ConfigError(error.about(path)) from None
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such configuration file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None


def parse_toml(data: bytes, parser: Any) -> dict[str, Any]:
    """A TOML file with ``tomllib`` or ``tomli``; raises ValueError for anything else.

    Both parsers take hours for a key of a hundred thousand parts, and raise RecursionError for
    brackets in brackets.
    """
    text = data.decode()
    if any(part.count(".") > _MOST_DOTS for part in text.translate(_BETWEEN_KEYS).split("\n")):
        raise ValueError(f"a key has more than {_MOST_DOTS} dots")
    try:
        return parser.loads(text)  # type: ignore[no-any-return]
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in environ.items():
        key = name.removeprefix(ENV_PREFIX)
        if key == name or key in ENV_RESERVED or key.startswith("_"):
            continue
        *sections, last = key.lower().split("__")
        table = found
        for section in sections:
            inner = table.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{name}: {section} is set as a value too; unset one of the two")
            table = inner
        table[last] = value
    return found


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = (
            _merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
        )
    return merged
