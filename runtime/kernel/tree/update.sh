#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# update.sh TREE: if the schemata at the tree's top differ from those in kernel/klogger/schemata,
# from which the generated files were made, runs klogger to generate them again.
set -eu
tree=$1
copies=$tree/kernel/klogger/schemata

# schemata FOLDER: their names, without files that editors and patches leave behind.
schemata() {
	(cd "$1" && ls -A) | grep -E '^\.klogger\.conf|\.klogger$' |
		grep -vE '(~|\.orig|\.rej|\.swp)$' || true
}

changed=''
for name in $( (schemata "$tree"; schemata "$copies") | sort -u); do
	cmp -s "$tree/$name" "$copies/$name" || changed="$changed $name"
done
[ -n "$changed" ] || exit 0
if command -v klogger >/dev/null; then
	echo "  KLOGGER $changed"
	exec klogger kernel integrate "$tree" >/dev/null
fi
echo "klogger: changed since the files of kernel/klogger were made:$changed" >&2
echo "  help: put klogger on the PATH, or run 'klogger kernel integrate' on this tree" \
	"where it is" >&2
exit 1
