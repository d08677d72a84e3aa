"""`[web]`: the console and the HTTP API, and who may use them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reconciler.settings.types import Folder, HeaderName, HostName, LinkUrl, ListenAddress, Network, Section, UrlPrefix


class WebSettings(Section):
    """Console and HTTP API; they need the extra `web`."""

    listen: ListenAddress | None = Field(
        default=None,
        description="host:port on which `reconciler run`, too, serves console and HTTP API; "
        "unset: only `reconciler web`.",
    )
    url_prefix: UrlPrefix = Field(
        default="", description="Stands before every path, for example /reconciler, where a proxy serves more."
    )
    bulk_admin_above: Annotated[int, Field(ge=1)] = Field(
        default=100, description="To repair or dismiss more messages than these at once needs the role admin."
    )
    users_file: Folder | None = Field(
        default=None,
        description="File of users and tokens, written by `reconciler web user`; unset: whoever is on this machine "
        "looks, and nobody acts.",
    )
    host_names: Annotated[list[HostName], Field(max_length=100)] = Field(
        default=[], description="Names, without a port, by which browsers reach the server from other machines."
    )
    tls_certificate: Folder | None = Field(
        default=None, description="PEM file of the certificate, with those that lead to its authority."
    )
    tls_key: Folder | None = Field(
        default=None, description="PEM file of the certificate's key; unset: it is in tls_certificate."
    )
    behind_proxy: bool = Field(
        default=False, description="true: a proxy in front ends TLS, and browsers reach nothing but the proxy."
    )
    proxy_addresses: Annotated[list[Network], Field(max_length=100)] = Field(
        default=[], description="Addresses or networks of the proxies; with behind_proxy nobody else is served."
    )
    probe_addresses: Annotated[list[Network], Field(max_length=100)] = Field(
        default=[],
        description="Addresses or networks of probes: 16 connections are kept for them and for this machine, however "
        "many others connect.",
    )
    hsts_seconds: Annotated[int, Field(ge=0, le=63_072_000)] = Field(
        default=0,
        description="How long a browser then asks this host name over TLS only, at every port (HSTS); 0: nothing is "
        "said about it.",
    )
    proxy_user_header: HeaderName | None = Field(
        default=None, description="Header in which the proxy names whom it has let in; unset: none is believed."
    )
    proxy_role_header: HeaderName | None = Field(
        default=None,
        description="Header in which the proxy gives the role: viewer, operator or admin; unset: each has proxy_role.",
    )
    proxy_role: Literal["viewer", "operator", "admin"] = Field(
        default="viewer", description="Role of whom the proxy names, where proxy_role_header is unset."
    )
    read_only: bool = Field(default=False, description="true: console and API change nothing, whoever asks.")
    public_url: LinkUrl | None = Field(
        default=None,
        description="Address by which people reach the console, with url_prefix; notices link there. Unset: they have "
        "no link.",
    )
    docs_url: LinkUrl | None = Field(
        default=None,
        description="Address of your copy of the folder docs, to which pages link; unset: their own /docs.",
    )
    audits_folder: Folder | None = Field(
        default=None, description="Folder in which each audit has its --out, named by its day; unset: none are shown."
    )
    audits_public_key: Folder | None = Field(
        default=None, description="PEM file of the auditor's public key, by which statements of audits are verified."
    )


def web_problems(web: WebSettings) -> list[str]:
    """Returns one line for each setting that would not do what it seems to do."""
    problems = []
    if web.tls_key is not None and web.tls_certificate is None:
        problems.append("web.tls_key is set and web.tls_certificate is not: set both")
    if (web.audits_folder is None) != (web.audits_public_key is None):
        problems.append("one of web.audits_folder and web.audits_public_key is set: set both, or none")
    if web.proxy_user_header is not None and not web.proxy_addresses:
        problems.append(
            "web.proxy_user_header is set and web.proxy_addresses is empty: whoever reaches the server could write the "
            "header; list the addresses of the proxies"
        )
    if web.behind_proxy and not web.proxy_addresses:
        problems.append(
            "web.behind_proxy is set and web.proxy_addresses is empty: nobody else than the proxies is served; list "
            "their addresses"
        )
    if web.hsts_seconds and web.tls_certificate is None and not web.behind_proxy:
        problems.append("web.hsts_seconds is set without TLS: set web.tls_certificate, or web.behind_proxy")
    if web.proxy_role_header is not None and web.proxy_user_header is None:
        problems.append("web.proxy_role_header is set and web.proxy_user_header is not: set both")
    return problems
