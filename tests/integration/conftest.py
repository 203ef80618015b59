"""Real Ray clusters for integration tests, one for all of them where they leave it as it was, and
one watch for many; and a browser."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.lasting import Lasting
from tests.support.parts import WRAPPERS, lacking
from tests.support.ray_cluster import RayCluster, Watched

HASTY = """
[rules."stall.requests"]
seconds = 20.0
[rules."serve.stalled"]
seconds = 15.0
"""
"""Settings of the watch that files share: requests need not be missed for minutes."""


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Three nodes: the head, 127.0.0.2, 127.0.0.3. A test leaves it as it found it.

    Debuggers that are unpacked here are on their PATH; they are for those who have GPUs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join([os.environ["PATH"], str(WRAPPERS)]))
        cluster = RayCluster(autoscaler=True)
    yield cluster
    cluster.stop()


@pytest.fixture
def watched(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[Watched]:
    """The cluster watched, its files in ``tmp_path/"log"``; nothing is left afterwards."""
    ray_cluster.up(tmp_path / "log")
    with ray_cluster.connected() as ray:
        yield Watched(ray, tmp_path / "log")
    ray_cluster.down()


@pytest.fixture(scope="module")
def watched_by_all(
    ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """The same for all tests of a file at once, whose jobs have names of their own and are ended
    by them; such a file has a fixture ``watched`` that gives this one."""
    log = tmp_path_factory.mktemp("watched") / "log"
    ray_cluster.up(log)
    with ray_cluster.connected() as ray:
        yield Watched(ray, log)
    ray_cluster.down()


@pytest.fixture(scope="session")
def lasting_watch(
    ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lasting[Watched]]:
    def begin(undo: contextlib.ExitStack) -> Watched:
        folder = tmp_path_factory.mktemp("watched")
        settings, log = folder / "hasty.toml", folder / "log"
        settings.write_text(HASTY)
        ray_cluster.up(log, RAY_SENTINEL_CONFIG=str(settings))
        undo.callback(ray_cluster.down)
        return Watched(undo.enter_context(ray_cluster.connected()), log)

    watch = Lasting("watched_by_files", begin)
    yield watch
    watch.end()


@pytest.fixture(scope="module")
def watched_by_files(lasting_watch: Lasting[Watched]) -> Watched:
    """The same for all files that ask for it, as long as a stream runs no other between them: tests
    that end their jobs, and do not care which others the cluster has seen."""
    return lasting_watch.get()


@pytest.fixture
def ray_train(ray_cluster: RayCluster) -> Iterator[None]:
    """Ray Train's own dependencies must be there; what it leaves in the cluster is ended."""
    missing = [name for name in ("pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        lacking(f"Ray Train lacks {', '.join(missing)}: pip install 'ray[train]'")
    yield
    ray_cluster.end_left_actors()


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """For all tests: it takes longer to start than a test takes. No test takes its tab as another
    file has left it."""
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def chromium(one_browser: Browser) -> Iterator[Browser]:
    """With a tab of a user of its own for the file, who has seen, stored and allowed nothing."""
    one_browser.renew()
    yield one_browser
    one_browser.renew()  # else its last page would go on asking for news
