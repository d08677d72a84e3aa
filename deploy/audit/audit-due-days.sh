#!/bin/sh
# Audits each of the last days that has no result yet, the oldest first; each follows the day before in its chain.
#
#   audit-due-days.sh FOLDER [OPTION OF `reconciler audit`]...
#
# FOLDER gets a folder a day, 2026-03-28, which is the audit's --out. Variables: AUDIT_DAYS (7), how many days back;
# AUDIT_TIMEZONE (UTC), whose days; RECONCILER (reconciler), the command. Needs GNU date.
# Exit code: that of the audits; of several 2 (no answer) before 1 (violations) before 0. A day that has a result is not
# audited again, whatever it says: remove its folder first. Each audit prints one object of JSON.
set -eu

folder=${1:?usage: audit-due-days.sh FOLDER [OPTION OF reconciler audit]...}
shift
mkdir -p "$folder"
zone=${AUDIT_TIMEZONE:-UTC}
today=$(TZ=$zone date +%F)
# Noon: every day has one, also the day that a change of the clock makes shorter.
day_before() { TZ=$zone date --date "$today 12:00 $1 days ago" +%F; }

worst=0
previous=
back=${AUDIT_DAYS:-7}
while [ "$back" -ge 1 ]; do
    day=$(day_before "$back")
    if [ ! -e "$folder/$day/result.json" ]; then
        code=0
        "${RECONCILER:-reconciler}" audit --window "$day/$(day_before $((back - 1)))" --timezone "$zone" \
            --out "$folder/$day" ${previous:+--previous "$previous"} --output json "$@" || code=$?
        case $code in
            0 | 1 | 2) if [ "$code" -gt "$worst" ]; then worst=$code; fi ;;
            *) exit "$code" ;;  # stopped, or a bug: the days after it would end in the same way
        esac
    fi
    if [ -e "$folder/$day/result.json" ]; then previous=$folder/$day; fi
    back=$((back - 1))
done
exit "$worst"
