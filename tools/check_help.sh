#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_help.sh PROGRAM [ARGUMENT...]: fails unless the program prints UTF-8 without control characters.
set -eu
text=$("$@"; echo .)
printf '%s' "$text" | iconv -f UTF-8 -t UTF-8 >/dev/null
controls=$(printf '%s' "$text" | LC_ALL=C tr -cd '\000-\010\013-\037\177' | wc -c)
if [ "$controls" -ne 0 ]; then
    echo "$* prints $controls control characters:" >&2
    printf '%s' "$text" | LC_ALL=C grep -n '[[:cntrl:]]' | cat -v >&2
    exit 1
fi
