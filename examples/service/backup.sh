#!/bin/sh
# Copies the state of the service while it is stopped: backup.sh /var/backups/skws
# Prints the archive that it has written. The service is started again whatever happens.
set -eu
to=${1:?a folder for the archives}
state=${SKWS_STATE:-/var/lib/skws}
stop=${SKWS_STOP:-systemctl stop skws}
start=${SKWS_START:-systemctl start skws}
umask 077
mkdir -p "$to"
archive="$to/skws-$(date -u +%Y%m%dT%H%M%SZ).tar.gz"
trap '$start' EXIT
$stop
tar --create --gzip --file "$archive.part" --directory "$state" .
mv "$archive.part" "$archive"
echo "$archive"
