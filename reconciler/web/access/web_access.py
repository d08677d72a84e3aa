"""The rights of visitors, for the application and the pages."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from reconciler.clock import Clock
from reconciler.settings.schema import Settings
from reconciler.web.access.addresses import TrustedProxies
from reconciler.web.access.cookies import session_cookie
from reconciler.web.access.exposure import Exposure, exposure_of
from reconciler.web.access.forgery import ForgeryGuard
from reconciler.web.access.logins import Logins
from reconciler.web.access.passwords import PasswordComparison
from reconciler.web.access.sessions import Sessions
from reconciler.web.access.throttle import LoginThrottle
from reconciler.web.access.users_file import UsersFile
from reconciler.web.access.visitors import ProxyHeaders, Visitors, require_role
from reconciler.web.exchange import WebRefusal, WebRequest
from reconciler.web.roles import ROLES_BY_NAME, Credential, WebRole


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAccess:
    """The rights of visitors. The threads of all requests share this object."""

    exposure: Exposure
    visitors: Visitors
    #: None: nobody can log in, because there is no file of users.
    logins: Logins | None
    #: True: nobody can change anything.
    is_read_only: bool

    def require_way(self, request: WebRequest) -> None:
        """Raises WebRefusal if the request came under a foreign name, or past the proxy that must send it."""
        self.exposure.require_own_name(request)
        if self.exposure.is_for_proxies_only and not self.visitors.proxies.sent(request):
            raise WebRefusal(
                HTTPStatus.FORBIDDEN, "only the proxies in web.proxy_addresses are served here", kind="past-the-proxy"
            )

    def require_admitted(self, request: WebRequest, role: WebRole) -> None:
        """Raises WebRefusal if the visitor lacks the role, or if a POST did not come from one of our pages."""
        is_nobody = request.visitor.credential is Credential.NONE and role is not WebRole.ANYBODY
        if is_nobody and self.logins is not None:
            raise WebRefusal(
                HTTPStatus.UNAUTHORIZED,
                "say who you are: log in, or send a bearer token",
                kind="login-needed",
                headers={"WWW-Authenticate": "Bearer"},
            )
        require_role(request, role)
        if request.method != "POST":
            return
        if self.is_read_only and role is not WebRole.ANYBODY:
            raise WebRefusal(
                HTTPStatus.FORBIDDEN, "web.read_only is set: nothing can be changed here", kind="read-only"
            )
        self.visitors.guard.require_own_page(request)


def build_access(settings: Settings, listen: str, *, clock: Clock) -> WebAccess:
    """Builds the rights. `listen`: host:port of the server. Raises ConfigurationError if serving there would be
    unsafe."""
    web = settings.web
    exposure = exposure_of(web, listen)
    guard = ForgeryGuard(scheme=exposure.scheme)
    proxies = TrustedProxies(web.proxy_addresses)
    users = None if web.users_file is None else UsersFile(Path(web.users_file), clock=clock)
    sessions = Sessions(clock=clock)
    cookie = session_cookie(settings.environment, prefix=web.url_prefix, is_secure=exposure.scheme == "https")
    visitors = Visitors(
        clock=clock,
        users=users,
        sessions=sessions,
        cookie=cookie,
        guard=guard,
        proxies=proxies,
        headers=_proxy_headers(settings),
    )
    logins = None
    if users is not None:
        logins = Logins(
            users=users,
            sessions=sessions,
            cookie=cookie,
            proxies=proxies,
            throttle=LoginThrottle(clock=clock),
            comparison=PasswordComparison(),
        )
    return WebAccess(exposure=exposure, visitors=visitors, logins=logins, is_read_only=web.read_only)


def _proxy_headers(settings: Settings) -> ProxyHeaders | None:
    web = settings.web
    if web.proxy_user_header is None:
        return None
    return ProxyHeaders(user=web.proxy_user_header, role=web.proxy_role_header, same_role=ROLES_BY_NAME[web.proxy_role])
