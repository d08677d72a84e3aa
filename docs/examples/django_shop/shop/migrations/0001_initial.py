"""The service's tables, and those of both plug-ins: `checkback.sql` is what `reconciler db sql` prints, for PostgreSQL."""

from pathlib import Path

from django.db import migrations, models


class Migration(migrations.Migration):
    """Each statement is in one transaction."""

    initial = True
    operations = [
        migrations.CreateModel("Customer", [("name", models.CharField(max_length=100, primary_key=True))]),
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("number", models.CharField(max_length=32, unique=True)),
                ("customer", models.CharField(max_length=100)),
            ],
        ),
        migrations.CreateModel("Bill", [("number", models.CharField(max_length=32, primary_key=True))]),
        migrations.RunSQL(Path(__file__).with_name("checkback.sql").read_text(encoding="utf-8")),
    ]
