#!/bin/sh
# Makes the passwords, URLs and certificate that compose.yml mounts: ./secrets, and .env beside it. Needs openssl.
# What is there already stays: databases and Redis keep the passwords of their first start.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets

# Only who may enter the folder reaches its files. Containers get them one by one, under logins of their own.
keep() { if [ ! -s "secrets/$1" ]; then cat > "secrets/$1"; chmod "${2:-444}" "secrets/$1"; fi; }
read_back() { cat "secrets/$1"; }

# A login of PostgreSQL, and a file for each database that it reaches.
login() {
    openssl rand -hex 24 | keep "$1_password"
    url=postgresql://$2:$(read_back "$1_password")@postgres:5432
    name=$1
    shift 2
    for tree in "$@"; do
        case $tree in outbox) database=orders ;; inbox) database=billing ;; *) database=ledger ;; esac
        echo "$url/$database" | keep "${name}_${tree}_url"
    done
}
login owner owner outbox inbox ledger
login run reconciler_run outbox inbox ledger
login sweep reconciler_sweep outbox inbox
login audit reconciler_audit outbox inbox ledger
login order order_service outbox
login billing billing_service inbox
openssl rand -hex 24 | keep grafana_password

for user in reconciler business; do
    openssl rand -hex 24 | keep "redis_password_of_$user"
done
digest() { printf %s "$(read_back "redis_password_of_$1")" | openssl dgst -sha256 -r | cut -d ' ' -f 1; }
sed -e "s/DIGEST_OF_reconciler/$(digest reconciler)/" -e "s/DIGEST_OF_business/$(digest business)/" \
    redis-users.acl | keep redis_users
echo "redis://reconciler:$(read_back redis_password_of_reconciler)@redis:6379/0" | keep redis_url
echo "redis://business:$(read_back redis_password_of_business)@redis:6379/0" | keep business_redis_url

if [ ! -s secrets/web_key ]; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=localhost \
        -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -keyout secrets/new_key 2>/dev/null | keep web_certificate
    keep web_key 440 < secrets/new_key
    rm secrets/new_key
fi
echo "SECRETS_GROUP=$(id -g)" > .env
