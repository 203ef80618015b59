"""The thin Ray shell: agent, coordinator, deployment.

Importing this package makes what was shipped with it importable (see ``vendor``), so that its
modules may import their dependencies as usual also on a node where nothing is installed.
"""

from __future__ import annotations

from ray_sentinel.actors.deployment.vendor import add_shipped_dependencies

add_shipped_dependencies()
