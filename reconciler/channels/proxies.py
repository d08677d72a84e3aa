"""The proxy for a receiver, from HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Errors never contain parts of these variables'
values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed leaves it out

from reconciler.channels.basic_login import basic_login
from reconciler.contract.urls import read_url
from reconciler.errors import ChannelAway, ChannelRefused

_LOGIN_REMEDY = "correct user and password in {variable}"
_REMEDIES = {
    401: _LOGIN_REMEDY,
    403: "let the proxy of {variable} pass this host on to the receiver, or name the receiver in NO_PROXY",
    407: _LOGIN_REMEDY,
}
_FORM = "http://user:password@host:3128, with user and password percent-encoded"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Proxy:
    """An HTTP proxy. The connection to the proxy is not encrypted."""

    host: str
    port: int
    #: The value of Proxy-Authorization. None: the proxy needs no login.
    login: str | None
    #: Variable that names the proxy: HTTPS_PROXY or HTTP_PROXY.
    variable: str

    @property
    def headers(self) -> dict[str, str]:
        """Headers for the proxy in each request."""
        return {} if self.login is None else {"Proxy-Authorization": self.login}

    def refusal(self, status: int, *, name: str) -> ChannelAway | ChannelRefused:
        """Makes the error for an answer that is not 2xx and comes from the proxy itself. `name`: the receiver's
        name."""
        found = f"{name}: the proxy of {self.variable} answers {status}"
        if status >= 500 or status in (408, 429):
            return ChannelAway(found)
        remedy = _REMEDIES.get(status, "is {variable} the address of an HTTP proxy?")
        return ChannelRefused(found, remedy=remedy.format(variable=self.variable))


def proxy_of(receiver: SplitResult, proxies: Mapping[str, str], *, name: str) -> Proxy | None:
    """Finds the proxy for a receiver's URL. None: the receiver is asked directly. `proxies`: the proxies as urllib
    reads them from the environment.

    Raises ChannelRefused for an unusable variable.
    """
    text = proxies.get(receiver.scheme)
    if not text or proxy_bypass_environment(str(receiver.hostname), proxies):
        return None
    variable = f"{receiver.scheme.upper()}_PROXY"
    try:
        url = read_url(text if "://" in text else f"http://{text}")
    except ValueError:
        raise ChannelRefused(f"{name}: {variable} is malformed", remedy=f"write {_FORM}") from None
    if url.scheme != "http" or url.driver:
        found = f"{name}: {variable} does not begin with http://, and no other proxy is spoken to"
        raise ChannelRefused(found, remedy=f"write {_FORM}")
    if len(url.hosts) != 1 or url.path.strip("/") or url.parameters:
        raise ChannelRefused(f"{name}: {variable} is malformed", remedy=f"write {_FORM}")
    ((host, port),) = url.hosts
    return Proxy(
        host=host.strip("[]"), port=port or 80, login=basic_login(url.username, url.password), variable=variable
    )
