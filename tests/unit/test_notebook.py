"""What a notebook shows, and the series as frames."""

from __future__ import annotations

import builtins
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from ray_sentinel import notebook
from ray_sentinel.config import Config
from ray_sentinel.errors import InputError, MissingPartError
from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport, Inventory, Plot
from ray_sentinel.model.health import Health
from ray_sentinel.model.status import Status
from ray_sentinel.report import series
from ray_sentinel.report.contract import incident_json
from ray_sentinel.sentinel import Sentinel
from tests.support.incidents import an_incident
from tests.support.parts import require_module

HOLE = float("nan")
PLOT = Plot(
    title="step time",
    unit="s",
    promql="train_step_seconds",
    times=(1000.0, 1005.0),
    series=(("rank 0", (0.5, HOLE)), ("rank 1", (0.6, 0.7))),
)
DIAGNOSIS = Diagnosis(
    outcome="healthy", cause="none", root_cause="All is <b>well</b>", confidence=0.7, plots=(PLOT,)
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    incident = an_incident(summary="rank 3 hangs")
    (tmp_path / "incident.json").write_bytes(incident_json(incident))
    (tmp_path / series.FILE).write_bytes(
        msgspec.json.encode(msgspec.structs.replace(DIAGNOSIS, plots=()))
    )
    (tmp_path / series.PLOTS_FILE).write_bytes(series.plots_json([PLOT]))
    return tmp_path


def test_a_bundle_is_shown_as_its_report_with_its_series(bundle: Path) -> None:
    report = notebook.read_incident(bundle)
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "rank 3 hangs" in shown
    assert "&lt;svg" in shown
    assert "# rank 3 hangs" in report._repr_markdown_()


def test_records_are_shown_as_pages() -> None:
    for record in (
        an_incident(),
        DiagnosisReport(inventory=Inventory(source="s"), diagnosis=DIAGNOSIS),
        Health(healthy=True, verdict="v"),
        Status(state="healthy", verdict="v"),
    ):
        shown = record._repr_html_()
        assert shown is not None
        assert shown.startswith("<iframe srcdoc=")
    assert "gil-held" in (an_incident()._repr_markdown_() or "")
    assert Status(state="healthy", verdict="v")._repr_markdown_() is None


def test_a_record_alone_is_shown_as_its_fields() -> None:
    code = (
        "from tests.support.incidents import an_incident;"
        "assert an_incident()._repr_html_() is None;"
        "assert an_incident()._repr_markdown_() is None"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=60)


def test_series_are_frames_by_time(bundle: Path) -> None:
    pandas = require_module("pandas")
    (frame,) = notebook.read_incident(bundle).frames().values()
    assert list(frame.columns) == ["rank 0", "rank 1"]
    assert frame.index[0] == pandas.Timestamp(1000.0, unit="s", tz="UTC")
    assert frame["rank 0"].isna().tolist() == [False, True]
    assert frame.attrs == {"unit": "s", "promql": "train_step_seconds"}


def test_without_pandas_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> ModuleType:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingPartError, match="pip install pandas"):
        notebook.frames([PLOT])


@pytest.mark.parametrize("data", [None, b"", b"{}", b"[" * 5000])
def test_what_is_no_bundle_is_said_to_be_none(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / "incident.json").write_bytes(data)
    with pytest.raises(InputError, match=r"incident\.json is no incident"):
        notebook.read_incident(tmp_path)


def test_an_incident_whose_series_are_not_known_has_no_frames(bundle: Path) -> None:
    (bundle / series.FILE).unlink()
    require_module("pandas")
    assert notebook.read_incident(bundle).frames() == {}


def test_a_sentinel_without_a_cluster_says_so() -> None:
    shown = Sentinel(Config())._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "unknown" in shown
