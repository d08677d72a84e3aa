#!/bin/sh
# Runs once, when the server's volume is new: a database for each tree of tables, a login for each role, and the tables of
# the business. What the logins may do with the reconciler's tables is in rights.sql.
set -eu
ask() { psql --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$1"; }
for database in orders billing ledger; do
    echo "CREATE DATABASE $database" | ask postgres
done
login() { echo "CREATE ROLE $1 LOGIN PASSWORD '$(cat "/run/secrets/$2_password")'" | ask postgres; }
for role in run sweep audit; do login "reconciler_$role" "$role"; done
for service in order billing; do login "${service}_service" "$service"; done
echo "CREATE TABLE orders (number bigint PRIMARY KEY); GRANT SELECT, INSERT ON orders TO order_service" | ask orders
echo "CREATE TABLE bills (number bigint); GRANT SELECT, INSERT ON bills TO billing_service" | ask billing
