"""What the coordinator answers on :9401: one page for people, JSON for programs.

=============================  ==========================================================
``/``                          the page; it asks the API, and follows ``/api/v1/live``
``/api/v1/page``               what the page shows: ``{"status", "incidents", "incident_counts"}``,
                               those that are open and the last that are over, in brief
``/api/v1/live``               the same as it changes, as server-sent events; see ``live``. Both
                               take ``?gpus=power`` or ``utilisation``: what the GPU of each rank
                               does, in levels (``rank_levels``)
``/api/v1/page/incidents``     a part of the list of incidents (``incidents.rows``)
``/api/v1/page/incidents/ID``  one of them, with the picture of who waits for whom
``/api/v1/pulse``              a ``PulseReport``: how long steps and calls took over the last hour;
                               the page asks every ten seconds
``/api/v1/lanes``              a ``LanesReport``: what ranks and roles did over the last hour; the
                               page asks every ten seconds
``/api/v1/perfetto?job=...``   the same of one job, or of all, as trace events, a file to be saved
``/api/v1/gpus?quantity=...``  a ``GpuMap`` of one ``GpuQuantity``
``/api/v1/ports``              a ``PortMap``: which RDMA ports are active
``/api/v1/page/rank?...``      the ``RankSeries`` of one rank: see ``rank.asked``
``/api/v1/page/output?...``    the end of what that rank wrote, read on its node at that moment
``/api/v1/page/groups``        a ``GroupsReport``: the process groups of ranks, as dumps tell them
``/api/v1/status``             a ``Status``, as ``status --json`` prints it
``/api/v1/ranks``              its jobs alone: ``[{"job", "attempt", "ranks": [...], ...}]``
``/api/v1/incidents``          as ``incidents --json`` prints them, oldest first
``/api/v1/incidents/ID``       one of them
``/api/v1/time``               the coordinator's wall clock, on which its incidents' times are
``/api/v1/history``            the embedded history, a file that ``diagnose`` reads
``/incidents/ID``              its report, as ``report.html`` in its bundle
``/incidents/ID.md``           the same as Markdown
``/healthz``                   ``ok``
=============================  ==========================================================

JSON is packed by gzip for clients that take that. Everything is read-only. A request whose Host
header is a name other than ``localhost`` is refused: a web site that points its own name at
127.0.0.1 must not read a training's state through its visitor's browser (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Collection
from importlib import resources
from typing import Any, get_args
from urllib.parse import parse_qs, unquote

import msgspec

from ray_sentinel.http.server import Handler, Request, Response
from ray_sentinel.model.gpus import GpuMap, GpuQuantity, RankGpus
from ray_sentinel.model.incident import Incident, RankOutput
from ray_sentinel.model.last_hour import LanesReport, PulseReport, RankAsked, RankSeries
from ray_sentinel.model.ports import PortMap
from ray_sentinel.model.process_groups import GroupsReport
from ray_sentinel.model.status import Status
from ray_sentinel.report.contract import incident_dict
from ray_sentinel.report.html import incident_html
from ray_sentinel.report.incident_markdown import markdown
from ray_sentinel.report.trace_events import trace_of
from ray_sentinel.web.columns import in_columns
from ray_sentinel.web.incidents import in_brief, rows, whole
from ray_sentinel.web.live import PAGE, Live
from ray_sentinel.web.packing import json_response, packed
from ray_sentinel.web.questions import UnknownQuestion
from ray_sentinel.web.rank import OutputReader, series
from ray_sentinel.web.rank_levels import WIDTHS, chosen_quantity, in_levels

STATIC_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)
MARKDOWN = ".md"
PAGE_POLICY = ("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
REPORT_POLICY = (
    "Content-Security-Policy",
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
)
"""Header that lets a report use its own style and run nothing: a report is one file."""


class PageSource(msgspec.Struct, frozen=True):
    """Where the answers come from; each call but ``output`` must return at once."""

    status: Callable[[], Status]
    incidents: Callable[[], tuple[Incident, ...]]
    """All confirmed incidents, oldest first."""
    history: Callable[[], bytes] | None = None
    """The embedded history as a file's bytes; raises OSError if it cannot be made. None if there is
    no history."""
    pulse: Callable[[], PulseReport] | None = None
    gpus: Callable[[GpuQuantity], GpuMap] | None = None
    rank_gpus: Callable[[GpuQuantity], RankGpus] = lambda quantity: RankGpus(quantity=quantity)
    lanes: Callable[[], LanesReport] = LanesReport
    ports: Callable[[], PortMap] = PortMap
    groups: Callable[[], GroupsReport] = GroupsReport
    rank: Callable[[RankAsked], RankSeries | None] = lambda _rank: None
    """None if there is no such rank; the same holds for ``output``."""
    output: Callable[[RankAsked], RankOutput | None] | None = None
    """What a rank wrote last; asks its node, which may take seconds."""


def looked(source: PageSource, names: Collection[str]) -> dict[str, Any]:
    """What the page shows without being asked, in columns (``PAGE``), and of the named quantities
    the levels of ranks at the same moment."""
    status = source.status()
    told: dict[str, Any] = {PAGE: {"status": in_columns(status), **in_brief(source.incidents())}}
    for quantity in WIDTHS:
        if quantity in names:
            told[quantity] = in_levels(status, source.rank_gpus(quantity))
    return told


def routes(source: PageSource, live: Live | None = None) -> dict[str, Handler]:
    """Path → handler, for a ``Server``; with ``live``, what is ``looked`` at is also sent as it
    changes."""
    plain: dict[str, Callable[[], Any]] = {
        "/api/v1/status": source.status,
        "/api/v1/ranks": lambda: source.status().jobs,
        "/api/v1/ports": source.ports,
        "/api/v1/time": lambda: {"time": time.time()},
        "/api/v1/incidents": lambda: [incident_dict(one) for one in source.incidents()],
    }
    if source.pulse is not None:
        plain["/api/v1/pulse"] = source.pulse
    plain["/api/v1/lanes"] = source.lanes
    plain["/api/v1/page/groups"] = source.groups
    made: dict[str, Handler] = {path: _asked(ask) for path, ask in plain.items()}
    for path, (body, kind) in static_files().items():
        made[path] = _static(body, kind)
    made["/api/v1/page"] = lambda request: _page(source, request)
    made["/api/v1/incidents/"] = lambda request: _incident(source, request, incident_dict)
    made["/api/v1/page/incidents/"] = lambda request: _incident(source, request, whole)
    made["/api/v1/page/incidents"] = lambda request: json_response(
        rows(source.incidents(), request.query)
    )
    made["/incidents/"] = lambda request: _report(source, request)
    made["/api/v1/perfetto"] = lambda request: _trace(source.lanes(), request)
    made["/api/v1/page/rank"] = lambda request: series(source.rank, request)
    if source.output is not None:
        made["/api/v1/page/output"] = OutputReader(source.output).answer
    if (gpus := source.gpus) is not None:
        made["/api/v1/gpus"] = lambda request: _gpus(gpus, request)
    if (image := source.history) is not None:
        made["/api/v1/history"] = lambda _request: _file(image)
    if live is not None:
        made["/api/v1/live"] = live.answer
    made["/healthz"] = lambda _request: Response(body=b"ok\n")
    return {path: _guarded(handler) for path, handler in made.items()}


def local(host: str) -> bool:
    """Whether a Host header names this machine by number or as ``localhost``."""
    name = host.strip()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _guarded(handler: Handler) -> Handler:
    def answer(request: Request) -> Response:
        if not local(request.headers.get("host", "localhost")):
            return Response(body=b"ask for this page as localhost\n", status=403)
        try:
            response = handler(request)
        except UnknownQuestion as error:
            response = json_response({"error": str(error)}, 400)
        headers = (*response.headers, *HEADERS)
        return packed(msgspec.structs.replace(response, headers=headers), request)

    return answer


def _asked(ask: Callable[[], Any]) -> Handler:
    return lambda _request: json_response(ask())


def _page(source: PageSource, request: Request) -> Response:
    chosen = chosen_quantity(request.query)
    told = looked(source, () if chosen is None else (chosen,))
    more = {} if chosen is None else {"levels": told[chosen]}
    return json_response(told[PAGE] | more)


def _file(make: Callable[[], bytes]) -> Response:
    try:
        return Response(body=make(), content_type="application/vnd.sqlite3")
    except OSError as error:
        return Response(body=f"it cannot be made: {error}\n".encode(), status=500)


def static_files() -> dict[str, tuple[bytes, str]]:
    """Path → body and type of what the page consists of: each of its modules is a file."""
    found = {}
    for file in resources.files(__package__).joinpath("static").iterdir():
        path = "/" if file.name == "page.html" else f"/{file.name}"
        if kind := STATIC_TYPES.get(file.name[file.name.rfind(".") :]):
            found[path] = file.read_bytes(), kind
    return found


def _static(body: bytes, kind: str) -> Handler:
    return lambda _request: Response(body=body, content_type=kind, headers=(PAGE_POLICY,))


def _gpus(ask: Callable[[GpuQuantity], GpuMap], request: Request) -> Response:
    wanted = request.query.removeprefix("quantity=")
    for quantity in get_args(GpuQuantity):
        if wanted == quantity:
            return json_response(ask(quantity))
    raise UnknownQuestion(f"?quantity= is one of {', '.join(get_args(GpuQuantity))}")


def _trace(report: LanesReport, request: Request) -> Response:
    job = parse_qs(request.query).get("job", [""])[-1]
    mine = tuple(one for one in report.jobs if job in ("", one.job))
    trace = trace_of(msgspec.structs.replace(report, jobs=mine))
    named = ("Content-Disposition", 'attachment; filename="ray-sentinel-lanes.json"')
    response = json_response(trace, 200 if mine else 404)
    return msgspec.structs.replace(response, headers=(named,))


def _find(source: PageSource, request: Request) -> Incident | None:
    wanted = unquote(request.path.rpartition("/")[2])
    return next((one for one in source.incidents() if one.id == wanted), None)


def _incident(
    source: PageSource, request: Request, told: Callable[[Incident], dict[str, Any]]
) -> Response:
    incident = _find(source, request)
    if incident is None:
        return json_response({"error": "there is no such incident; /api/v1/incidents"}, 404)
    return json_response(told(incident))


def _report(source: PageSource, request: Request) -> Response:
    as_markdown = request.path.endswith(MARKDOWN)
    asked = msgspec.structs.replace(request, path=request.path.removesuffix(MARKDOWN))
    incident = _find(source, asked)
    if incident is None:
        return Response(body=b"there is no such incident\n", status=404)
    if as_markdown:
        text = markdown(incident).encode("utf-8", "replace")
        return Response(body=text, content_type="text/markdown; charset=utf-8")
    body = incident_html(incident).encode("utf-8", "replace")
    return Response(body=body, content_type="text/html; charset=utf-8", headers=(REPORT_POLICY,))
