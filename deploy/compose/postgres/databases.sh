#!/bin/sh
# Runs once, when the server's volume is new: a database for each tree of tables, a login for each role.
set -eu
for database in orders billing ledger; do
    psql --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres --command "CREATE DATABASE $database"
done
for role in run sweep audit; do
    psql --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres <<SQL
CREATE ROLE reconciler_$role LOGIN PASSWORD '$(cat "/run/secrets/${role}_password")';
SQL
done
