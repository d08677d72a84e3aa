"""The page of one message, or of all messages of a business id. It shows the life, the witnesses and the next steps of
each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from markupsafe import Markup

from reconciler.commands.explain import life_stories
from reconciler.contract.facts import Fact
from reconciler.contract.stored_facts import fact_in
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.telling.life_story import GOES_ON, NEEDS_A_PERSON, NOT_REPAIRED, LifeStory
from reconciler.web.console.rendering import page
from reconciler.web.console.saying import Moment
from reconciler.web.excerpts import shown
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.few_at_once import asks_everything
from reconciler.web.services import WebServices
from reconciler.words import told

#: Codes of the outlooks of open keys.
WAITS = frozenset({GOES_ON, NOT_REPAIRED})
#: Verdict of an open key -> its runbook.
_OF_VERDICT: Mapping[str, str] = {
    **dict.fromkeys(LOSSES, "LostMessages"),
    Verdict.ROLLED_BACK_WRONGLY: "WronglyRolledBack",
    Verdict.LAGGING: "WatermarkStuck",
    Verdict.UNKNOWN: "LookupsUnknown",
}


@asks_everything
def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows messages by unique key or business id, from the path or the query. Without a name, shows only the form.

    Each request asks every witness, like `reconciler explain`. `part=now`: only the part that changes while a further
    step is expected. The page reads this part repeatedly. `shown`: the newest key on the page.
    """
    name = request.parts.get("name") or request.asked("name").strip()
    if not name:
        return page(services, request, "message.html", name="", found=None, moves=False)
    found = life_stories(services.connections, name)
    stories = [one for one in found.stories if one.is_known]
    keys = [story.unique_key for story in stories]
    newest = keys[0] if keys else ""
    newest_shown = request.asked("shown", newest)
    placed = stories[keys.index(newest_shown) :] if newest_shown in keys else []
    template = "message_now.html" if request.asked("part") == "now" else "message.html"
    moves = not all(story.is_at_rest for story in stories)
    values = {
        "found": found,
        "stories": placed,
        "moves": moves,
        "evidence": evidence,
        "weight": weight,
        "can_change": can_change,
        "runbooks": runbooks,
    }
    return page(services, request, template, name=name, newest=newest, shown=newest_shown, **values)


def weight(story: LifeStory) -> str:
    """Returns a class of the style that says how bad the state of the message is."""
    if story.needs_a_person:
        return "warn"
    return "good" if story.is_at_rest else "notice"


def can_change(story: LifeStory) -> bool:
    """Returns False if no act can change the message any more. Taking back a dismissal does not count."""
    return weight(story) != "good"


def runbooks(story: LifeStory) -> Sequence[str]:
    """Returns the pages of docs about the outlook, without repetition. Returns an empty list if nothing is to be
    done."""
    return tuple(dict.fromkeys(page for line in story.outlook if (page := _runbook(line))))


def _runbook(line: Fact) -> str:
    verdict = line.fields.get("verdict")
    if line.code in NEEDS_A_PERSON:
        return "RepairFailing" if verdict in LOSSES else "Quarantined"
    return _OF_VERDICT.get(str(verdict), "") if line.code in WAITS else ""


def evidence(
    values: Mapping[str, object], moment: Moment, said: Callable[[Fact], Markup], language: str
) -> Iterator[tuple[str, Markup]]:
    """Yields the names and values on which an event is based. Facts and times have their own form, and nested values
    are JSON."""
    for name, value in told(values, language).items():
        if value is None:
            continue
        fact = fact_in(values, name)
        if fact is not None:
            yield name.replace("_", " "), said(fact)
        elif name.endswith("_ms") and type(value) is int:
            yield name.removesuffix("_ms").replace("_", " "), moment(value)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield name.replace("_", " "), Markup("{}").format(shown(text))
