"""Views."""

import prometheus_client
from django.http import HttpResponse, HttpResponseForbidden, JsonResponse
from django.views.decorators.http import require_POST

from checkback_producers.errors import TransientError
from shop.models import Customer
from shop.sending import placed, sending


@require_POST
def order(request):
    """Places an order for `name`."""
    if not Customer.objects.filter(name=request.GET["name"]).exists():
        return HttpResponseForbidden("no such customer")
    try:
        return JsonResponse({"order": placed(request.GET["name"])})
    except TransientError:
        return HttpResponse("try again", status=503)


def metrics(_):
    """For Prometheus."""
    return HttpResponse(prometheus_client.generate_latest(sending()[1]), content_type="text/plain")
