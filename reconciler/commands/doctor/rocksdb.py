"""Doctor: what RocketMQ keeps in RocksDB from 5.4 on, and what follows for look-ups (MessageStoreConfig 5.5.0)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.commands.diagnosis import Diagnosis

_HOURS_A_DAY = 24


def check_rocksdb(check: str, config: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Notes and failures for a broker's RocksDB settings; none where they are missing or have their defaults."""
    if config.get("transRocksDBEnable") == "true" and config.get("transWriteOriginTransHalfEnable") == "false":
        yield Diagnosis(
            check=check,
            level="note",
            found="keeps halves in RocksDB (transRocksDBEnable=true, transWriteOriginTransHalfEnable=false)",
            remedy="they are looked up there, too; but an open half and one that was rolled back look the same; one "
            "that the broker gave up is not parked",
        )
    if config.get("indexFileReadEnable") == "false":
        yield from _index(check, config)


def _index(check: str, config: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Without index files IndexRocksDBStore.queryOffset answers, for the last maxRocksDBIndexQueryDays only."""
    if config.get("indexRocksDBEnable") != "true":
        found = "indexFileReadEnable=false, and there is no other index"
        yield Diagnosis(check=check, level="fail", found=found, remedy="set it to true: nothing can be looked up")
        return
    days, hours = config.get("maxRocksDBIndexQueryDays", ""), config.get("fileReservedTime", "")
    if days.isdecimal() and hours.isdecimal() and int(days) * _HOURS_A_DAY < int(hours):
        yield Diagnosis(
            check=check,
            level="fail",
            found=f"keeps messages for {hours} h, finds those of the last {days} days (maxRocksDBIndexQueryDays)",
            remedy=f"set maxRocksDBIndexQueryDays to {-(-int(hours) // _HOURS_A_DAY)}: older ones look lost",
        )
