"""Whole training jobs as time series, with planted causes: what the diagnosis is judged by.

``ranges`` writes down, before any playbook was tuned, from where levels, lags and noise are drawn.
``world`` plays a job of some hosts forward on a time axis; ``faults`` are what can be planted into
it, ``decoys`` what only looks like a fault; ``catalogue`` lists the scenarios and the truth about
each; ``openmetrics`` writes a job as text and makes a TSDB of it with ``promtool``.

Nothing here knows the package that is tested: no threshold, no name and no level is shared with it.
"""
