"""Two private MariaDB servers that are one Galera cluster, each in a folder of the test."""

from __future__ import annotations

import os
import shutil
from typing import Self

import pymysql

from tests.services.mariadb import MariaDBServer
from tests.services.ports import free_port
from tests.services.requirements import galera_missing as missing
from tests.services.requirements import galera_provider

__all__ = ["GaleraNode", "missing"]

_PROVIDER_OPTIONS = (
    "gmcast.listen_addr=tcp://127.0.0.1:{group};base_port={group};ist.recv_addr=127.0.0.1:{transfer};"
    "gcache.size=8M;gcache.page_size=8M"
)
#: A state transfer by what lies in the folder already: a copy of the first node's, and the provider sends what came
#: after it. The donor tells the joiner its position by a file.
_TRANSFER = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --role) role=$2;; --address) address=$2;; --gtid) gtid=$2;; esac
  shift
done
if [ "$role" = joiner ]; then
  echo "ready $address/copied"
  until [ -s {file} ]; do sleep 0.1; done
  cat {file}
else
  echo "$gtid" > {file}.new && mv {file}.new {file}
  echo "done $gtid"
fi
"""


class GaleraNode(MariaDBServer):
    """The first node of a cluster, or one that joins it while the first one runs."""

    def __init__(self, first: GaleraNode | None = None) -> None:
        super().__init__()
        self._first = first or self
        self.group_port = free_port(neighbours=(1,))
        self._transfer_port = free_port()
        self._holder: pymysql.connections.Connection[pymysql.cursors.Cursor] | None = None
        programs = self._first.folder / "programs"
        self.environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.options = {
            "binlog-format": "ROW",
            "innodb-autoinc-lock-mode": "2",
            "wsrep-on": "ON",
            "wsrep-provider": str(galera_provider()),
            "wsrep-provider-options": _PROVIDER_OPTIONS.format(group=self.group_port, transfer=self._transfer_port),
            "wsrep-cluster-name": self._first.folder.name,
            "wsrep-cluster-address": f"gcomm://127.0.0.1:{first.group_port}" if first else "gcomm://",
            "wsrep-node-address": "127.0.0.1",
            "wsrep-sst-method": "copied",
        } | ({} if first else {"wsrep-new-cluster": ""})

    def start(self) -> Self:
        """The first node is stopped once, so that its folder can be copied with the cluster's position."""
        if self._first is self:
            programs = self.folder / "programs"
            programs.mkdir()
            transfer = programs / "wsrep_sst_copied"
            transfer.write_text(_TRANSFER.replace("{file}", str(self.folder / "position")), encoding="ascii")
            transfer.chmod(0o700)
            super().start()
            self._execute("CREATE DATABASE held", "CREATE TABLE held.held (id INT AUTO_INCREMENT PRIMARY KEY)")
            super().stop()
            shutil.copytree(self.folder / "data", self.folder / "copy")
            (self.folder / "copy" / "galera.cache").unlink()
        else:
            shutil.move(self._first.folder / "copy", self.folder / "data")
        super().start()
        assert self._child is not None
        self._child.until(self._is_synced, within_seconds=60, what="a node of Galera")
        return self

    def stop(self) -> None:
        """SIGTERM; what is held is let go."""
        self.resume()
        super().stop()

    def pause(self) -> None:
        """Nothing of the other nodes is applied any more: the applier waits for the lock of a table, and behind it, in
        the cluster's order, everything else."""
        self._holder = pymysql.connect(unix_socket=str(self.unix_socket), user="root", connect_timeout=60)
        self._holder.cursor().execute("LOCK TABLES held.held READ")
        self._first._execute("INSERT INTO held.held VALUES (NULL)", "COMMIT")

    def resume(self) -> None:
        """Applies on."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def catch_up(self) -> None:
        """Returns when everything that is committed in the cluster now is here."""
        self._execute("SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1")

    def causal_reads(self) -> int:
        """How many statements have waited so, since it was started."""
        find = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'WSREP_CAUSAL_READS'"
        return int(str(self._execute(find)))

    def is_waited_for(self, text: str) -> bool:
        """Whether a statement with this text has run for a while."""
        find = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND TIME_MS > 500"
        return bool(self._execute(f"{find} AND INFO LIKE '%{text}%'"))  # the tests' own text

    def _is_synced(self) -> bool:
        find = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'WSREP_READY'"
        return self._execute(find) == "ON"
