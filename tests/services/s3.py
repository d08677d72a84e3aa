"""An S3 server on loopback: S3Proxy, which checks signatures and keeps each bucket as a folder."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.brokers.jars import s3proxy_jars
from tests.services.ports import free_port
from tests.services.processes import Child
from tests.services.spark_start import COMPILES_QUICKLY

IDENTITY, SECRET = "auditor", "a secret of the tests"
START_SECONDS = 60.0
_SETTINGS = """
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={identity}
s3proxy.credential={secret}
s3proxy.ignore-unknown-headers=true
jclouds.provider=filesystem
jclouds.filesystem.basedir={buckets}
jclouds.identity=none
jclouds.credential=none
"""
# Without it each byte of a request is logged.
_LOGGING = """<configuration>
<appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%level %msg%n</pattern></encoder>
</appender><root level="INFO"><appender-ref ref="out"/></root></configuration>
"""


class S3Server:
    """Runs while the block does; files are put into a bucket by putting them into its folder."""

    def __init__(self, folder: Path) -> None:
        self.buckets = folder / "buckets"
        self.port = free_port()
        self._folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """As users tell every AWS client where a server is and who they are."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": IDENTITY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def __enter__(self) -> Self:
        self.buckets.mkdir(parents=True)
        settings, logging = self._folder / "s3proxy.conf", self._folder / "logback.xml"
        settings.write_text(_SETTINGS.format(port=self.port, identity=IDENTITY, secret=SECRET, buckets=self.buckets))
        logging.write_text(_LOGGING)
        command: list[str | Path] = ["java", *COMPILES_QUICKLY.split(), f"-Dlogback.configurationFile={logging}"]
        command += ["-cp", f"{s3proxy_jars()}/*", "org.gaul.s3proxy.Main", "--properties", settings]
        self._child = Child(command, log=self._folder / "s3proxy.log")
        try:
            self._child.until(self._answers, within_seconds=START_SECONDS, what="S3Proxy")
        except BaseException:
            self._child.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.stop()

    def _answers(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0
