# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Completion of klogger for fish: klogger itself says what may follow.

function __klogger_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    # After -- comes another command.
    if set -l separator (contains -i -- -- $words)
        set -e words[1..$separator]
        set -l rest (string escape -- $words) $current
        complete -C "$rest"
        return
    end
    set -l found ($words[1] complete fish -- $words $current 2>/dev/null)
    if test "$found[1]" = files
        __fish_complete_path $current
    end
    set -e found[1]
    string join \n -- $found
end

complete -c klogger -f -a '(__klogger_complete)'
