"""Paths."""

from django.urls import path
from shop import views

urlpatterns = [path("orders", views.order), path("metrics", views.metrics)]
