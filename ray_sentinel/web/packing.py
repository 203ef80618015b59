"""Answers of JSON, packed by gzip for clients that take that."""

from __future__ import annotations

import gzip
from typing import Any

import msgspec

from ray_sentinel.http.negotiation import accepts_gzip
from ray_sentinel.http.server import Request, Response

JSON = "application/json"
LEAST_PACKED = 2048
"""Size in bytes from which on an answer is worth packing."""
PACKING_LEVEL = 4
"""Compression level of gzip. A megabyte of ranks takes 10 ms and shrinks to a 26th; at level 1 it
takes half of that and shrinks to a 23rd."""
PACKED_HEADERS = (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))


def json_response(told: Any, status: int = 200) -> Response:
    """``told`` (plain data or records) as an answer."""
    return Response(body=msgspec.json.encode(told), content_type=JSON, status=status)


def packed(response: Response, request: Request) -> Response:
    """The answer, packed where that is worth it and its client takes it.

    A history is large, and its file hardly becomes smaller: packing it would keep all others who
    ask for the page waiting. So JSON alone is packed.
    """
    if response.content_type != JSON or len(response.body) < LEAST_PACKED:
        return response
    if not accepts_gzip(request.headers.get("accept-encoding", "")):
        return response
    body = gzip.compress(response.body, PACKING_LEVEL)
    return msgspec.structs.replace(response, body=body, headers=response.headers + PACKED_HEADERS)
