# ruff: noqa: E501 - log lines are as long as they are
"""A model hub out of reach, apart from one that answers and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path

URL = "https://huggingface.co/api/models/x"
RAISED = """2025-05-01 10:00:00,000 INFO starting
Traceback (most recent call last):
  File "/app/train.py", line 60, in main
    model = load()
  File "/usr/lib/python3/site-packages/{library}/file_download.py", line 1, in hf_hub_download
    return request()
"""


def kind_of(tmp_path: Path, line: str, library: str = "huggingface_hub") -> tuple[str, str]:
    log = RAISED.format(library=library) + line + "\n"
    (tmp_path / "job.log").write_text(log, encoding="utf-8")
    answer = triage_path(tmp_path, load_catalogue(), now=0.0)
    return answer.kind, answer.signature


@pytest.mark.parametrize(
    "line",
    [
        "requests.exceptions.ReadTimeout: (ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)\"), '(Request ID: 1)')",
        "requests.exceptions.ConnectTimeout: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /x (Caused by ConnectTimeoutError(<urllib3.connection.HTTPSConnection object at 0x7f>, 'Connection to huggingface.co timed out. (connect timeout=10)'))\"), '(Request ID: 2)')",
        "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /x (Caused by NameResolutionError(\\\"<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to resolve 'huggingface.co' ([Errno -3] Temporary failure in name resolution)\\\"))\"), '(Request ID: 3)')",
        f"requests.exceptions.HTTPError: 503 Server Error: Service Temporarily Unavailable for url: {URL}",
        f"huggingface_hub.errors.HfHubHTTPError: 504 Server Error: Gateway Time-out for url: {URL}",
        f"httpx.HTTPStatusError: Server error '503 Service Unavailable' for url '{URL}'",
        "httpx.ConnectError: [Errno -2] Name or service not known",
        "httpx.ConnectTimeout: timed out",
        "httpx.ReadTimeout: The read operation timed out",
        "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and we cannot find the requested files in the local cache. Please check your connection and try again or make sure your Internet connection is on.",
    ],
)
def test_out_of_reach(line: str, tmp_path: Path) -> None:
    assert kind_of(tmp_path, line)[0] == "hub-unreachable"


@pytest.mark.parametrize(
    "line",
    [
        f"huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: {URL}",
        f"httpx.HTTPStatusError: Client error '429 Too Many Requests' for url '{URL}'",
    ],
)
def test_too_many_requests_has_a_remedy_of_its_own(line: str, tmp_path: Path) -> None:
    assert kind_of(tmp_path, line) == ("hub-unreachable", "hub-busy")


@pytest.mark.parametrize(
    "line",
    [
        f"huggingface_hub.errors.HfHubHTTPError: 401 Client Error: Unauthorized for url: {URL} (Request ID: Root=1) Invalid credentials in Authorization header",
        f"requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: {URL}",
        f"httpx.HTTPStatusError: Client error '401 Unauthorized' for url '{URL}'",
        f"huggingface_hub.errors.HfHubHTTPError: 403 Client Error: Forbidden for url: {URL}",
        "OSError: Invalid user token. The access token has expired.",
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been disabled. To enable hf.co look-ups and downloads online, set 'local_files_only' to False.",
        f"huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. (Request ID: Root=1) Repository Not Found for url: {URL}.",
    ],
)
def test_a_hub_that_refuses_is_reached(line: str, tmp_path: Path) -> None:
    assert kind_of(tmp_path, line)[0] == "config"


def test_another_host_is_not_the_hub(tmp_path: Path) -> None:
    line = "httpx.ConnectTimeout: timed out"
    assert kind_of(tmp_path, line, "my_reward_client")[0] != "hub-unreachable"


REACHED = "https://huggingface.co/Qwen/Qwen3-8B/resolve/main/config.json"
THEN = """
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/train.py", line 60, in main
    model = load()
OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files."""


@pytest.mark.parametrize("then", ["", THEN], ids=["alone", "and what follows"])
def test_offline_mode_is_no_hub_out_of_reach(then: str, tmp_path: Path) -> None:
    line = f"huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach {REACHED}: offline mode is enabled. To disable it, please unset the `HF_HUB_OFFLINE` environment variable."
    assert kind_of(tmp_path, line + "\n" + then) == ("config", "hub-offline")
    answer = triage_path(tmp_path, load_catalogue(), now=0.0)
    assert not any("set HF_HUB_OFFLINE=1" in step for step in answer.next_steps)
    assert not answer.echoes


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        (f"huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. (Request ID: Root=1)\n\nRepository Not Found for url: {REACHED}.", "hub-not-found"),
        (f"requests.exceptions.HTTPError: 404 Client Error: Not Found for url: {REACHED}", "hub-not-found"),
        (f"OSError: You are trying to access a gated repo.\n403 Client Error. (Request ID: Root=1)\n\nCannot access gated repo for url {REACHED}.", "hub-access"),
        (f"requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: {REACHED}\n\nRepository Not Found for url: {REACHED}.", "hub-token-refused"),
    ],
)  # fmt: skip
def test_an_answer_of_the_hub_leaves_no_echo_of_a_hub_out_of_reach(
    line: str, signature: str, tmp_path: Path
) -> None:
    assert kind_of(tmp_path, line) == ("config", signature)
    answer = triage_path(tmp_path, load_catalogue(), now=0.0)
    assert "hub-unreachable" not in {echo.kind for echo in answer.echoes}
