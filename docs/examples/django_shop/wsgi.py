"""What a web server loads, in each of its processes."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
application = get_wsgi_application()

from shop.sending import sending  # noqa: E402  # needs the settings

sending()  # from now on check-backs are answered
