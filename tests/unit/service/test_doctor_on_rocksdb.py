from __future__ import annotations

import pytest

from reconciler.commands.asking.brokers import broker_fact
from reconciler.commands.doctor.rocksdb import FIND_LONGER, check_rocksdb

RESERVED = {"fileReservedTime": "72", "maxRocksDBIndexQueryDays": "7"}
INDEX = {"indexRocksDBEnable": "true", "indexFileReadEnable": "false"}


@pytest.mark.parametrize(
    ("config", "levels"),
    [
        ({}, []),  # a broker of before 5.4, or one that does not tell
        ({"transRocksDBEnable": "false", "transWriteOriginTransHalfEnable": "true", "indexFileReadEnable": "true"}, []),
        ({"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "true"}, []),
        ({"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}, ["note"]),
        ({**INDEX, **RESERVED}, []),
        ({**INDEX, **RESERVED, "fileReservedTime": "168"}, []),
        ({**INDEX, **RESERVED, "fileReservedTime": "169"}, ["fail"]),
        ({**INDEX, **RESERVED, "maxRocksDBIndexQueryDays": "2"}, ["fail"]),
        ({**INDEX, "indexRocksDBEnable": "false"}, ["fail"]),
    ],
)
def test_settings_under_which_messages_look_lost_are_told_by_doctor(config: dict[str, str], levels: list[str]) -> None:
    findings = list(check_rocksdb(broker_fact("b"), config))
    assert [finding.level for finding in findings] == levels
    assert all(finding.found and finding.remedy for finding in findings)


@pytest.mark.set_up(
    "RocketMQ 5.4 and 5.5 with halves or its index in RocksDB (transRocksDBEnable, indexFileReadEnable=false)"
)
def test_doctor_says_how_many_days_are_enough() -> None:
    (finding,) = check_rocksdb(broker_fact("b"), {**INDEX, "fileReservedTime": "73", "maxRocksDBIndexQueryDays": "3"})
    assert finding.remedy == FIND_LONGER(days=4)
