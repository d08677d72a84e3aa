"""The service's own tables."""

from django.db import models


class Customer(models.Model):
    """Who may order."""

    name = models.CharField(max_length=100, primary_key=True)


class Order(models.Model):
    """The database makes `id`; `number` is made before, and travels in the message."""

    number = models.CharField(max_length=32, unique=True)
    customer = models.CharField(max_length=100)


class Bill(models.Model):
    """What the worker writes."""

    number = models.CharField(max_length=32, primary_key=True)
