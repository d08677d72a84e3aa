"""All acts of visitors. Each act has a route of the API and a route of the console, with its own path and role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.web.acts.act import WebAct
from reconciler.web.acts.bodies import OPEN_BODY
from reconciler.web.acts.brakes import HOLD, LIFT
from reconciler.web.acts.dismissing import DISMISS
from reconciler.web.acts.incident import ACKNOWLEDGE
from reconciler.web.acts.jobs import CANCEL, REBUILD
from reconciler.web.acts.repairing import REPAIR

ACTS: Sequence[WebAct[Any]] = (REPAIR, HOLD, LIFT, DISMISS, ACKNOWLEDGE, REBUILD, CANCEL, OPEN_BODY)
#: Name -> act whose result a page shows. The other acts are jobs, which have a page of their own, or show their result
#: elsewhere.
TOLD: Mapping[str, WebAct[Any]] = {act.name: act for act in ACTS if act.is_told}
