"""What is seen before anybody scrolls: the sentence, who waits for whom, and the pulse."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_data import incident, incident_of_actors, status
from tests.support.page_gpus import gpus, ports
from tests.support.page_lanes import report as lanes
from tests.support.page_nodes import cluster, stopped
from tests.support.page_pulse import report

pytestmark = pytest.mark.integration

PLACES = """['#headline', '#incidents .waits', '#pulse svg', '#jobs h3'].map((one) => {
  const node = document.querySelector(one), at = node?.getBoundingClientRect();
  return node && node.checkVisibility() ? [at.left, at.top, at.right, at.bottom] : null;
})"""
WIDE, PHONE = (1280, 800), (420, 800)

Place = tuple[float, float, float, float]


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Callable[..., list[Place | None]]]:
    pages: list[Page] = []

    def start(size: tuple[int, int], told: Status, *incidents: Incident) -> list[Place | None]:
        source = PageSource(
            lambda: told, lambda: incidents, pulse=report, lanes=lanes, gpus=gpus, ports=ports
        )
        pages.append(Page(source, port=0))
        chromium.renew()
        chromium.resize(*size)
        chromium.open(pages[-1].link)
        chromium.until("document.querySelector('#pulse svg') !== null", "the pulse is drawn")
        chromium.settle()
        found: list[Place | None] = chromium.run(PLACES)
        return found

    yield start
    assert chromium.complaints == []
    for page in pages:
        page.close()


def hung() -> tuple[Status, Incident, Incident]:
    """Ranks that wait for one of them, and actors that wait for a rollout."""
    found = incident()
    assert found.verdict is not None
    waiting = ("ranks 0-2, 4-6: in all_reduce", "rank 7: in barrier")
    verdict = msgspec.structs.replace(found.verdict, waiting=waiting)
    return status(), incident_of_actors(), msgspec.structs.replace(found, verdict=verdict)


def of_thousands() -> tuple[Status, Incident]:
    """A job whose cells have no room beside the incident."""
    told = cluster(1000, scene="stopped")
    verdict = stopped(told).verdict
    assert verdict is not None
    waiting = ("ranks 0-5332, 5334-7999: in all_reduce",)
    return told, msgspec.structs.replace(
        stopped(told), verdict=msgspec.structs.replace(verdict, waiting=waiting)
    )


@pytest.mark.parametrize("scene", [hung, of_thousands])
def test_in_a_hang_the_sentence_the_chain_and_the_pulse(
    opened: Callable[..., list[Place | None]], scene: Callable[[], tuple[object, ...]]
) -> None:
    head, chain, pulse, job = opened(WIDE, *scene())
    assert head is not None
    assert chain is not None
    assert pulse is not None
    assert job is not None
    assert max(head[3], chain[3], pulse[3]) <= WIDE[1]
    assert pulse[0] > chain[2], "beside each other"
    assert job[1] > pulse[3]


@pytest.mark.parametrize("nodes", [1, 1000])
def test_of_a_healthy_job_the_sentence_and_the_pulse(
    opened: Callable[..., list[Place | None]], nodes: int
) -> None:
    head, chain, pulse, job = opened(WIDE, cluster(nodes))
    assert chain is None
    assert pulse is not None
    assert head is not None
    assert head[3] < pulse[1] < pulse[3] <= WIDE[1]
    assert pulse[2] - pulse[0] > 1000, "as wide as the page"
    assert job is not None
    assert pulse[3] < job[1] < WIDE[1], "the job is seen, too"


@pytest.mark.parametrize("scene", [hung, of_thousands])
def test_on_a_phone_they_follow_each_other(
    opened: Callable[..., list[Place | None]], scene: Callable[[], tuple[object, ...]]
) -> None:
    head, chain, pulse, job = opened(PHONE, *scene())
    tops = [one[1] for one in (head, chain, pulse, job) if one is not None]
    assert len(tops) == 4
    assert tops == sorted(tops)


def test_it_is_drawn_as_wide_as_there_is_room(
    opened: Callable[..., list[Place | None]], chromium: Browser
) -> None:
    opened(WIDE, *hung())
    fits = """(() => {
      const card = document.querySelector('.card.pulse'), drawn = card.querySelector('svg');
      return Math.abs(card.clientWidth - drawn.clientWidth - 32) < 4;
    })()"""
    for width in (1280, 1000, 420, 1600):
        chromium.resize(width, 800)
        chromium.until(fits, f"its width on {width}")
