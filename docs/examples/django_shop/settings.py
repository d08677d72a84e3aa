"""Of a project with one application and one database."""

import os

import sqlalchemy as sa

_url = sa.make_url(os.environ["DATABASE_URL"])
_engine = {"postgresql": "django.db.backends.postgresql", "sqlite": "django.db.backends.sqlite3"}
DATABASES = {
    "default": {
        "ENGINE": _engine[_url.get_backend_name()],
        "NAME": _url.database,
        "USER": _url.username or "",
        "PASSWORD": _url.password or "",
        "HOST": _url.host or "",
        "PORT": _url.port or "",
        "ATOMIC_REQUESTS": False,  # the check shop.E001 says why
    }
}
#: What `open_producer` takes.
CHECKBACK = {
    "group": "order-service",
    "environment": "production",
    "name_servers": os.environ.get("NAME_SERVERS"),
    "outbox_url": os.environ["DATABASE_URL"],
}
SECRET_KEY = os.environ.get("SECRET_KEY", "for the tests")
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "urls"
WSGI_APPLICATION = "wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
