"""The releases that an embedded broker imitates. Each family has one release, with the facts that the client also
uses."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.broker_facts import BrokerFacts, facts_of
from reconciler.rocketmq.wire.codes import MQVersion


@dataclass(frozen=True, kw_only=True, slots=True)
class Family(BrokerFacts):
    """The facts of one release, under the name by which users choose the family."""

    name: str
    release: str

    @property
    def help_text(self) -> str:
        """The end of some refusals (FAQUrl.suggestTodo)."""
        return f"\nSee {self.help_address} for further details."

    def phrase(self, text: str) -> str:
        """Returns an error text of END_TRANSACTION in the spelling of this family. Up to 4.2, the text begins in lower
        case."""
        return text if self.has_half_topic else text[0].lower() + text[1:]


def _family(name: str, release: str) -> Family:
    facts = facts_of(MQVersion.of_release(release))
    return Family(name=name, release=release, **asdict(facts))


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _family("3.2.6", "3.2.6"),
        _family("4.2", "4.2.0"),
        _family("4.4", "4.4.0"),
        _family("4.9", "4.9.7"),
        _family("5.x", "5.3.3"),
    )
}

DEFAULT_FAMILY = "5.x"
_OTHER_NAMES = {"5": "5.x"} | {family.release: family.name for family in FAMILIES.values()}


def family_named(name: str) -> Family:
    """Returns the family of this name or release. Raises InvalidValue, which names the choices."""
    found = FAMILIES.get(_OTHER_NAMES.get(name, name))
    if found is None:
        raise InvalidValue("family", name, "one of " + ", ".join(FAMILIES))
    return found
