# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=sh disable=SC2154
# What runs on a host of `klogger collect`: `sh` reads it from its standard input, behind lines that
# set token, klogger (the program), where (a folder or nothing), grace (seconds), to (-o or --dir)
# and name. Behind it is a call of main with the options for the recorder. Nothing is installed.
#
# It says lines that begin with the token, and passes on what the recorder says. It is told
# "start NS" (a time of this host's clock), "stop", and, when the log has been fetched, "bye". If
# its input ends before that, the recording is ended as well, and the log is kept for a while.

say() {
    echo "$token $*" 2>/dev/null
}

# Nanoseconds, or seconds where `date` knows no better.
now() {
    case $(date +%N) in
        *[!0-9]* | '') echo "$(date +%s)000000000" ;;
        *) date +%s%N ;;
    esac
}

# If it is a long time, somebody has set the clock.
sleep_until() {
    ms=$((($1 - $(now)) / 1000000))
    if [ "$ms" -le 0 ] || [ "$ms" -gt 10000 ]; then
        return 0
    fi
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))" 2>/dev/null || sleep $((ms / 1000))
}

# What is in the foreground: in the background of such a shell a program ignores SIGINT.
record() {
    # shellcheck disable=SC2016 # the inner shell's
    sh -c 'echo $$ >"$0" && exec "$@"' "$folder/pid" \
        "$klogger" record --messages json "$to" "$folder/$name" "$@" </dev/null 2>&1
}

interrupt() {
    until [ -e "$folder/ended" ] || [ -s "$folder/pid" ]; do
        sleep 0.1 2>/dev/null || sleep 1
    done
    [ -e "$folder/ended" ] || kill -INT "$(cat "$folder/pid")"
}

# Until "bye", or until the connection is gone.
attend() {
    while read -r word _; do
        case $word in
            stop) interrupt ;;
            bye) exit 0 ;;
        esac
    done
    interrupt
    exit 1
}

# The rings outlive a recorder that is killed: a whole log is made of them and what it has written.
rescue() {
    if [ "$to" = -o ]; then
        "$klogger" rescue -q "$1" -o "$folder/$name" </dev/null >/dev/null 2>&1
    else
        "$klogger" rescue -q "$1" </dev/null >/dev/null 2>&1
    fi && say rescued "$1" && rm -f "$folder/$name.old" "$folder/$name"/*.old
}

# Until somebody has removed the folder, or nobody came.
linger() {
    n=0
    while [ "$n" -lt "$grace" ] && [ -d "$folder" ]; do
        sleep 1
        n=$((n + 1))
    done
    rm -rf "$folder"
}

main() {
    umask 077
    # Not ignored, which the recorder would inherit.
    trap : HUP INT TERM PIPE
    if ! version=$("$klogger" --version </dev/null 2>/dev/null); then
        say missing
        return
    fi
    folder=$(mktemp -d "${where:-${TMPDIR:-/var/tmp}}/klogger-collect-XXXXXX") || return
    say ready "$version"
    say folder "$folder"
    if ! read -r word at || [ "$word" != start ]; then
        rm -rf "$folder"
        return
    fi
    exec 3<&0
    attend <&3 &
    attendant=$!
    sleep_until "$at"
    record "$@"
    code=$?
    if [ "$code" -gt 128 ]; then
        rescue "$(cat "$folder/pid")"
    fi
    : >"$folder/ended"
    say ended "$code"
    if wait "$attendant"; then
        rm -rf "$folder"
        say removed
    else
        linger </dev/null >/dev/null 2>&1 &
    fi
}
