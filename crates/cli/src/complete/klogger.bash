# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash
# Completion of klogger for bash: klogger itself says what may follow.

_klogger() {
    local at cur=$2 program=${1/#\~/$HOME}
    COMPREPLY=()
    # After -- comes another command.
    for ((at = 1; at < COMP_CWORD; at++)); do
        [[ ${COMP_WORDS[at]} == -- ]] || continue
        if declare -F _command_offset >/dev/null; then
            _command_offset $((at + 1))
        elif ((at + 1 == COMP_CWORD)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$cur")
        else
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        fi
        return
    done

    local -a found
    mapfile -t found < <(
        "$program" complete bash -- "${COMP_LINE:0:COMP_POINT}" "$cur" 2>/dev/null
    )
    COMPREPLY=("${found[@]:1}")
    if [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *[:=] ]]; then
        compopt -o nospace
    fi
    [[ ${found[0]} == files ]] || return 0
    if declare -F _filedir >/dev/null; then
        _filedir
    else
        compopt -o filenames
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur")
    fi
}

complete -F _klogger klogger
