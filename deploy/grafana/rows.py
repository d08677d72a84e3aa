"""What an on-call engineer sees, row by row."""

from __future__ import annotations

from checkback_producers.metrics import MEANINGS as PRODUCER_MEANINGS
from deploy.grafana.panels import (
    ALERTS,
    MATCHERS,
    PLACE,
    Column,
    Panel,
    Query,
    age,
    graph,
    increase,
    newest,
    of,
    quantiles,
    rate,
    stat,
)
from reconciler.instrumentation.metrics import catalogue as c

FAILED = 'state="failed"'
ROLLED_BACK_WRONGLY = 'verdict="rolled_back_wrongly"'
MEMORY_LOST = 'reason="memory_lost"'
REDIS = 'dependency="redis"'
LOOK_UP_UNKNOWN = 'outcome="unknown"'
#: The ledger answered, so that what it does not name is a known 0.
NONE_KNOWN = f"0 * sum ({newest(c.LOST)})"
ANSWERS = {0: ("away", "red"), 1: ("answers", "green")}
YES = {0: ("no", "green"), 1: ("yes", "red")}
HOUR = "1h"

MONEY = [
    stat(
        "Commits are accounted for up to",
        "How long ago that is, for the subscription that is furthest behind. Every earlier commit was consumed, is not "
        "for the group, waits for the group, or is named by `reconciler list candidates`.",
        f"max ({age(c.ACCOUNTED_UNTIL)})",
        unit="s",
        of_alert="AccountedUntilStale",
    ),
    stat(
        "Subscriptions without such a time",
        "Their commits cannot be accounted for now: `reconciler status` names the link of the chain that is missing.",
        f"count (count by (topic, consumer_group) ({of(c.LOSSES)}) unless on (topic, consumer_group) "
        f"{of(c.ACCOUNTED_UNTIL)}) or 0 * count ({of(c.LOSSES)})",
        red_at=1,
    ),
    stat(
        "Lost now",
        "Losses that are proved and have not arrived. Repairs bring them by themselves, unless a brake holds them.",
        f"sum ({newest(c.LOST)})",
        of_alert="LostMessages",
    ),
    stat(
        "Quarantined",
        "They wait for a person: `reconciler list candidates --state QUARANTINED`, then `reconciler explain KEY`.",
        f"sum ({newest(c.QUARANTINED)})",
        of_alert="Quarantined",
    ),
    stat(
        "Failed repairs",
        "They are not tried again: `reconciler explain KEY` says why, `reconciler repair KEY` gives another chance.",
        f"sum ({newest(c.REPAIR_ROWS, FAILED)}) or {NONE_KNOWN}",
        of_alert="RepairFailing",
    ),
    stat(
        "Open keys, lost or not",
        "Keys with a verdict that are neither settled nor quarantined. Most wait for an answer or for their group.",
        f"sum ({newest(c.OPEN)}) or {NONE_KNOWN}",
    ),
    Panel(
        title="Subscriptions",
        says="One line a subscription. An empty field is a value that is not known.",
        kind="table",
        width=24,
        queries=[
            Query(age(c.ACCOUNTED_UNTIL)),
            Query(newest(c.LOST)),
            Query(newest(c.QUARANTINED)),
            Query(f"sum by (topic, consumer_group) ({newest(c.OPEN)})"),
            Query(newest(c.PENDING)),
            Query(newest(c.OLDEST_PENDING)),
            Query(age(c.WATERMARK)),
            Query(age(c.LAST_ROUND)),
            Query(newest(c.REPAIRED)),
        ],
        columns=[
            Column(name="topic", title="Topic"),
            Column(name="consumer_group", title="Consumer group"),
            Column(name="Value #A", title="Accounted for up to, ago", unit="s", of_alert="AccountedUntilStale"),
            Column(name="Value #B", title="Lost", of_alert="LostMessages"),
            Column(name="Value #C", title="Quarantined", of_alert="Quarantined"),
            Column(name="Value #D", title="Open"),
            Column(name="Value #E", title="Pending"),
            Column(name="Value #F", title="Oldest pending", unit="s", of_alert="OldestPendingHigh"),
            Column(name="Value #G", title="Watermark, ago", unit="s"),
            Column(name="Value #H", title="Last round, ago", unit="s", of_alert="RoundStale"),
            Column(name="Value #I", title="Repaired, in the ledger"),
        ],
    ),
    graph(
        "Time since the last commit that is accounted for",
        "It rises by a second a second while a link of the chain stands still. A gap: the time is not known.",
        Query(age(c.ACCOUNTED_UNTIL)),
        unit="s",
        of_alert="AccountedUntilStale",
    ),
    graph(
        "Lost keys",
        "A loss appears with its proof and goes with its arrival.",
        Query(newest(c.LOST)),
        of_alert="LostMessages",
    ),
    graph(
        "Open keys by verdict",
        "`docs/reference/verdicts.md` says what each verdict means.",
        Query(newest(c.OPEN), f"{PLACE} {{{{verdict}}}}"),
    ),
]
FIRING = f'ALERTS{{alertstate="firing",alertname=~"{"|".join(ALERTS)}"}}'
ALARMS = [
    Panel(
        title="Alerts that fire",
        says="From deploy/prometheus/rules.yml. A click on a name opens its runbook. None is shown while none fires, "
        "and also where Prometheus has not loaded the rules.",
        kind="table",
        width=16,
        none="none",
        queries=[Query(FIRING)],
        columns=[
            Column(
                name="alertname",
                title="Alert",
                link={"title": "Runbook", "url": "${runbooks:raw}/${__value.raw}.md", "targetBlank": True},
            ),
            Column(name="severity", title="Severity"),
            Column(name="topic", title="Topic"),
            Column(name="consumer_group", title="Consumer group"),
            Column(name="job", title="Job"),
        ],
    ),
    stat(
        "Release",
        "Which releases run. Several at once is an upgrade under way.",
        f"count by (version) ({of(c.BUILD_INFO)})",
        legend="{{version}}",
        width=8,
        height=7,
    ),
]
FLOW = [
    graph(
        "Announced and matched",
        "Both lines lie on each other in calm. Announced keys that stay unmatched are pending.",
        Query(rate(c.ANNOUNCED, *c.SUBSCRIPTION), f"{PLACE} announced"),
        Query(rate(c.MATCHED, *c.SUBSCRIPTION), f"{PLACE} matched"),
        Query(rate(c.NOT_TAKEN, *c.SUBSCRIPTION), f"{PLACE} not taken"),
        unit="ops",
    ),
    graph(
        "Pending keys", "It waits for the group, or for a verdict.", Query(newest(c.PENDING)), of_alert="BacklogGrowing"
    ),
    graph(
        "Age of the oldest pending key",
        "A group that lags lets it rise; it is no loss.",
        Query(newest(c.OLDEST_PENDING)),
        unit="s",
        of_alert="OldestPendingHigh",
    ),
    graph(
        "New losses by verdict",
        "Losses within each step of the graph, by their cause.",
        Query(increase(c.LOSSES, *c.SUBSCRIPTION, "verdict"), f"{PLACE} {{{{verdict}}}}"),
        is_stacked=True,
    ),
    graph(
        "Rolled back wrongly within an hour",
        "Commits that the broker was told to roll back: the producer's code is at fault.",
        Query(
            f"sum by (topic, consumer_group) (increase({of(c.LOSSES, ROLLED_BACK_WRONGLY)}[{HOUR}]))",
        ),
        of_alert="WronglyRolledBack",
    ),
    graph(
        "Repairs by what came of them",
        "Steps within each step of the graph. `done` is verified; `open` goes on with another rung.",
        Query(increase(c.REPAIR_STEPS, "topic", "rung", "outcome"), "{{topic}} {{rung}} {{outcome}}"),
        is_stacked=True,
    ),
    graph(
        "Verdicts",
        "All verdicts that were written, losses or not.",
        Query(increase(c.VERDICTS, *c.SUBSCRIPTION, "verdict"), f"{PLACE} {{{{verdict}}}}"),
        is_stacked=True,
    ),
    graph(
        "Repairs in the ledger",
        "What repairs wait for: `sent` for an effect, `open` for their turn, `failed` for a person.",
        Query(newest(c.REPAIR_ROWS), "{{topic}} {{rung}} {{state}}"),
    ),
    graph("Repaired keys in the ledger", "It falls when the ledger deletes old rows.", Query(newest(c.REPAIRED))),
]
TIMES = [
    graph(
        "Time to detection",
        "From a key's first round to the proof of its loss: the grace period, the group's lag, the brokers' answers. "
        f"Over {HOUR}.",
        *quantiles(c.DETECTION, *c.SUBSCRIPTION, within=HOUR),
        unit="s",
    ),
    graph(
        "Time to verified repair",
        f"From the proof of a loss to the effect in the consumer's inbox. Over {HOUR}.",
        *quantiles(c.REPAIR_TIME, "topic", within=HOUR),
        unit="s",
    ),
    graph("Duration of a look-up", "One question to all brokers.", *quantiles(c.LOOK_UP_DURATION, "kind"), unit="s"),
    graph(
        "Duration of a round",
        "It should stay below the interval of rounds.",
        *quantiles(c.ROUND_DURATION, *c.SUBSCRIPTION),
        unit="s",
    ),
    graph("Duration of a sweep", "Over all outboxes.", *quantiles(c.SWEEP_DURATION), unit="s"),
    graph(
        "Duration of a reading for these figures",
        "Above a second: `metrics_unread` in the log, or a ledger that is slow.",
        Query(f"max by (instance) ({of(c.STATE_READ)})", "{{instance}}"),
        unit="s",
    ),
]
BRAKES = [
    Panel(
        title="Circuit breaker is open",
        says="Too much became lost at once, and nothing of the topic is repaired. Find out which witness is wrong; "
        "then `reconciler resume TOPIC --breaker`.",
        kind="state-timeline",
        queries=[Query(newest(c.BREAKER_OPEN), "{{topic}}")],
        words=YES,
        of_alert="BreakerOpen",
    ),
    Panel(
        title="Held by a person",
        says="`reconciler status` says who and why; `reconciler resume TOPIC` ends it.",
        kind="state-timeline",
        queries=[Query(newest(c.HOLD), "{{topic}}")],
        words={0: ("no", "green"), 1: ("held", "orange")},
    ),
    Panel(
        title="An outage of Redis is open",
        says="Rounds wait until Redis is back and what it lost is read from the inboxes.",
        kind="state-timeline",
        queries=[Query(f"max ({of(c.OUTAGE_OPEN)})", "outage")],
        words=YES,
    ),
    graph(
        "Openings of the breaker",
        "Within each step of the graph.",
        Query(increase(c.BREAKER_OPENINGS, "topic"), "{{topic}}"),
        is_stacked=True,
    ),
    graph(
        "Outages, recovered rows",
        "Outages by reason, and the inbox rows that brought memory back after them.",
        Query(increase(c.OUTAGES, "reason"), "outages: {{reason}}"),
        Query(increase(c.RECOVERED, *c.SUBSCRIPTION), f"{PLACE} recovered"),
    ),
    graph(
        "Memory that Redis lost, within an hour",
        "Redis lost what it had acknowledged: outages of this kind, and rounds that were voided.",
        Query(
            f"sum (increase({of(c.OUTAGES, MEMORY_LOST)}[{HOUR}])) + sum (increase({of(c.ROUNDS_VOIDED)}[{HOUR}]))",
            "outages and voided rounds",
        ),
        of_alert="RedisMemoryLost",
    ),
]
DEPENDENCIES = [
    Panel(
        title="Redis answers",
        says="While it does not, rounds pause; producers and consumers go on.",
        kind="state-timeline",
        queries=[Query(f"min by (job) ({of(c.DEPENDENCY_UP, REDIS)})", "{{job}}")],
        words=ANSWERS,
        of_alert="RedisDown",
    ),
    Panel(
        title="All dependencies",
        says="Each process asks what it cannot do without. `reconciler doctor` gives the remedies.",
        kind="state-timeline",
        width=16,
        queries=[Query(f"min by (job, dependency) ({of(c.DEPENDENCY_UP)})", "{{job}} {{dependency}}")],
        words=ANSWERS,
    ),
    Panel(
        title="State can be read",
        says="While it cannot, every figure of the ledger is missing here. None is shown as 0 then.",
        kind="state-timeline",
        queries=[Query(f"min by (instance) ({of(c.STATE_UP)})", "{{instance}}")],
        words={0: ("no", "red"), 1: ("yes", "green")},
    ),
    graph(
        "Share of look-ups that are unknown",
        "An unknown look-up proves nothing: losses stay unproved.",
        Query(
            f"sum by (topic) (rate({of(c.LOOK_UPS, LOOK_UP_UNKNOWN)}[10m]))"
            f" / sum by (topic) (rate({of(c.LOOK_UPS)}[10m]))",
            "{{topic}}",
        ),
        unit="percentunit",
        of_alert="LookupsUnknown",
    ),
    graph(
        "Look-ups by outcome",
        "Questions to brokers, a second.",
        Query(rate(c.LOOK_UPS, "kind", "outcome"), "{{kind}} {{outcome}}"),
        unit="ops",
    ),
]
ROUNDS = [
    graph("Time since the last round", "Of any process.", Query(age(c.LAST_ROUND)), unit="s", of_alert="RoundStale"),
    graph(
        "Rounds by outcome",
        "Within each step of the graph.",
        Query(increase(c.ROUNDS, *c.SUBSCRIPTION, "outcome"), f"{PLACE} {{{{outcome}}}}"),
        is_stacked=True,
    ),
    graph(
        "Shards by process",
        "The sum over processes is the number of shards.",
        Query(f"sum by (topic, consumer_group, instance) ({of(c.SHARDS_OWNED)})", f"{PLACE} {{{{instance}}}}"),
        is_stacked=True,
    ),
    graph(
        "Lag of the group's watermark",
        "How long ago the newest message was stored that the group has passed for certain.",
        Query(age(c.WATERMARK)),
        unit="s",
        of_alert="WatermarkStuck",
    ),
    graph(
        "Lateness of jobs",
        "How long a turn is overdue.",
        Query(f"max by (instance, exported_job) ({of(c.LATENESS)})", "{{instance}} {{exported_job}}"),
        unit="s",
    ),
    graph(
        "Turns that did no work",
        "Within each step of the graph.",
        Query(increase(c.TURNS_MISSED, "job", "reason"), "{{exported_job}} {{reason}}"),
        is_stacked=True,
    ),
    graph(
        "Stopped shards, voided rounds",
        "A stopped shard needs a person: the log's `shard_stopped` names it.",
        Query(increase(c.SHARDS_STOPPED, *c.SUBSCRIPTION), f"{PLACE} stopped"),
        Query(increase(c.ROUNDS_VOIDED, *c.SUBSCRIPTION), f"{PLACE} voided"),
        is_stacked=True,
    ),
]
ANNOUNCEMENTS = [
    graph("Announced keys admitted", "Into half sets, a second.", Query(rate(c.ADMITTED, *c.SUBSCRIPTION)), unit="ops"),
    graph(
        "Announcements not read yet",
        "By the process that reads the queue.",
        Query(f"max by (topic, consumer_group) ({of(c.ANNOUNCEMENTS_BEHIND)})"),
    ),
    graph(
        "Refused announcements, queues read again",
        "Refused ones are in quarantine: `reconciler list quarantine`.",
        Query(increase(c.REFUSED, *c.SUBSCRIPTION), f"{PLACE} refused"),
        Query(increase(c.REWINDS, *c.SUBSCRIPTION), f"{PLACE} read again"),
        is_stacked=True,
    ),
    graph(
        "Queues by state",
        "Of the unique-key topic, over all processes.",
        Query(f"sum by (topic, consumer_group, state) ({of(c.ANNOUNCEMENT_QUEUES)})", f"{PLACE} {{{{state}}}}"),
        is_stacked=True,
    ),
]
SWEEP = [
    stat(
        "Time since the last whole sweep",
        "Of any process.",
        age(c.LAST_SWEEP),
        unit="s",
        of_alert="SweepStale",
        width=8,
        height=7,
    ),
    graph(
        "Sweeps by outcome",
        "Within each step of the graph.",
        Query(increase(c.SWEEPS, "outcome"), "{{outcome}}"),
        is_stacked=True,
    ),
    graph(
        "Swept rows",
        "What sweeps did with outbox rows, or found.",
        Query(increase(c.SWEPT_ROWS, "outcome"), "{{outcome}}"),
        is_stacked=True,
    ),
    graph(
        "Rows that stay NEW",
        "Damaged rows, and rows whose announcements fail: what a whole walk over an outbox leaves behind. And producer "
        "groups of which no sweep announces anything, since no section names them.",
        Query(f"max by (instance) ({of(c.SWEEP_WALK)})", "{{instance}}"),
        Query(f"max ({of(c.UNSWEPT)})", "groups of nobody"),
    ),
]
HAND_OVERS = [
    graph(
        "Hand-overs",
        "Within each step of the graph.",
        Query(increase(c.HAND_OVERS, *c.SUBSCRIPTION, "outcome"), f"{PLACE} {{{{outcome}}}}"),
        is_stacked=True,
    ),
    graph(
        "Rows of the history",
        "Dropped rows and missed rounds are gaps, which the audit names.",
        Query(rate(c.HISTORY_WRITTEN), "written"),
        Query(rate(c.HISTORY_DROPPED), "dropped"),
        Query(rate(c.HISTORY_MISSED), "rounds missed"),
        unit="ops",
    ),
    graph("Time since the last round in the history", "It follows the rounds.", Query(age(c.HISTORY_UNTIL)), unit="s"),
    graph(
        "Spool of the history",
        "Rows that wait to be sealed.",
        Query(f"max by (instance) ({of(c.HISTORY_SPOOL)})", "{{instance}}"),
        unit="bytes",
    ),
    graph(
        "Spans",
        "Made and not sent: the collector is away, or slow.",
        Query(rate(c.SPANS, "outcome"), "{{outcome}}"),
        unit="ops",
    ),
    graph(
        "Messages to people",
        "Within each step of the graph. A refused one waits for a person: `reconciler doctor` says why.",
        Query(increase(c.NOTICES, "notifier", "outcome"), "{{notifier}} {{outcome}}"),
        is_stacked=True,
    ),
    graph(
        "Oldest message that could not be sent",
        "It is sent once its receiver answers.",
        Query(newest(c.OLDEST_NOTICE), "{{notifier}}"),
        unit="s",
        of_alert="NoticesUnsent",
    ),
]


def of_service(name: str, *by: str) -> Query:
    """A count of a plug-in, a second. Services have jobs and instances of their own."""
    chosen = ",".join(MATCHERS[label] for label in by if label in MATCHERS)
    word = name.removeprefix("reconciler_").removesuffix("_total").replace("_", " ")
    shown = " ".join(f"{{{{{label}}}}}" for label in by)
    return Query(f"sum by ({', '.join(by)}) (rate({name}{{{chosen}}}[$__rate_interval]))", f"{shown} {word}")


PRODUCED = ("halves", "committed", "rolled_back", "unknown", "left_to_check_back")
GROUP = "consumer_group"
PLUG_INS = [
    graph(
        "Producers: blocks by outcome",
        "From `checkback_producers.metrics`. `unknown` is finished by check-back or by the reconciler.",
        *(of_service(f"reconciler_producer_{name}_total", "producer_group") for name in PRODUCED),
        unit="ops",
    ),
    graph(
        "Producers: what went wrong",
        "Nothing is lost by it; each costs a check-back or the sweeper's work.",
        *(
            of_service(f"reconciler_producer_{name}_total", "producer_group")
            for name in PRODUCER_MEANINGS
            if name not in PRODUCED
        ),
        unit="ops",
    ),
    graph(
        "Consumers: messages by outcome",
        "From `checkback_consumers.metrics`.",
        of_service("reconciler_handled_messages_total", GROUP, "outcome"),
        of_service("reconciler_handler_collisions_total", GROUP),
        of_service("reconciler_handler_incomplete_total", GROUP),
        of_service("reconciler_handler_unrecorded_total", GROUP),
        unit="ops",
    ),
    graph(
        "Consumers: recorded consumptions",
        "What waits or was given up costs the reconciler a look-up in the inbox for each key.",
        of_service("reconciler_consumptions_recorded_total", GROUP),
        of_service("reconciler_consumptions_missed_total", GROUP),
        Query(
            f"sum by ({GROUP}) (reconciler_consumptions_waiting_keys{{{MATCHERS[GROUP]}}})",
            "{{consumer_group}} keys that wait",
        ),
    ),
    Panel(
        title="Consumers: the recorder's Redis answers",
        says="While it does not, consumption goes on and keys wait.",
        kind="state-timeline",
        queries=[
            Query(
                f"min by ({GROUP}, instance) (reconciler_recorder_redis_up{{{MATCHERS[GROUP]}}})",
                "{{consumer_group}} {{instance}}",
            )
        ],
        words=ANSWERS,
    ),
]

#: Title, panels, shut: a shut row asks nothing until it is opened.
ROWS = (
    ("Is money missing?", MONEY, False),
    ("Alerts", ALARMS, False),
    ("Announced, matched, lost, repaired", FLOW, False),
    ("Brakes", BRAKES, False),
    ("Dependencies and look-ups", DEPENDENCIES, False),
    ("How long it takes", TIMES, False),
    ("Rounds", ROUNDS, False),
    ("Sweep", SWEEP, False),
    ("Announcements", ANNOUNCEMENTS, True),
    ("Hand-overs, history, spans, messages to people", HAND_OVERS, True),
    ("Plug-ins in the services", PLUG_INS, True),
)
