"""What `reconciler doctor` says about the RocksDB that brokers can use from 5.4 on (MessageStoreConfig 5.5.0)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.commands.diagnosis import Diagnosis
from reconciler.contract.facts import Code, Fact, Field

HALVES_IN_ROCKSDB = Code("doctor.halves-in-rocksdb")
HALVES_LOOK_ALIKE = Code("doctor.halves-look-alike")
NO_OTHER_INDEX = Code("doctor.no-other-index")
READ_INDEX_FILES = Code("doctor.read-index-files")
FOUND_TOO_SHORT = Code("doctor.found-too-short", hours=Field.NUMBER, days=Field.NUMBER)
FIND_LONGER = Code("doctor.find-longer", days=Field.NUMBER)

_HOURS_A_DAY = 24


def check_rocksdb(check: Fact, config: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Yields findings about a broker's RocksDB settings. Missing settings and defaults yield no finding."""
    if config.get("transRocksDBEnable") == "true" and config.get("transWriteOriginTransHalfEnable") == "false":
        yield Diagnosis(
            check=check,
            level="note",
            found=HALVES_IN_ROCKSDB(),
            remedy=HALVES_LOOK_ALIKE(),
        )
    if config.get("indexFileReadEnable") == "false":
        yield from _index(check, config)


def _index(check: Fact, config: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Yields a failure if a broker that reads no index files cannot look up every message.

    IndexRocksDBStore.queryOffset finds only messages of the last maxRocksDBIndexQueryDays.
    """
    if config.get("indexRocksDBEnable") != "true":
        yield Diagnosis(check=check, level="fail", found=NO_OTHER_INDEX(), remedy=READ_INDEX_FILES())
        return
    days, hours = config.get("maxRocksDBIndexQueryDays", ""), config.get("fileReservedTime", "")
    if days.isdecimal() and hours.isdecimal() and int(days) * _HOURS_A_DAY < int(hours):
        yield Diagnosis(
            check=check,
            level="fail",
            found=FOUND_TOO_SHORT(hours=int(hours), days=int(days)),
            remedy=FIND_LONGER(days=-(-int(hours) // _HOURS_A_DAY)),
        )
