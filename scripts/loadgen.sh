#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# loadgen.sh: fetches the sources of MLPerf's LoadGen from PyPI into build/loadgen/sources, once. Builds that are
# configured afterwards have it in examples/serving/load. Exit status 77: they cannot be had here.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
folder=$root/build/loadgen
package=mlcommons-loadgen==6.0.17
checksum=a2e85d09e3cc0c606f89bfe1fbf97537c8b5b238ae0afbd923ad9c710fcf2ca8

if [[ -e $folder/sources/loadgen.cc ]]; then exit 0; fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

python=python3
if ! python3 -m pip --version &>/dev/null; then # Debian's python3-venv brings one along
    python3 -m venv "$work/environment" || exit 77
    python=$work/environment/bin/python
fi
# pip asks a package of sources for its name, and installs what that needs, in a place of its own.
if ! timeout 300 "$python" -m pip --disable-pip-version-check download -q --no-deps --no-binary :all: -d "$work" \
    "$package"; then
    echo "skipped: pip cannot download $package" >&2
    exit 77
fi
archive=$(echo "$work"/*.tar.gz)
sha256sum --check --quiet <<<"$checksum  $archive"
mkdir "$work/sources"
tar -xzf "$archive" -C "$work/sources" --strip-components=1
mv -T "$work/sources" "$folder/sources" || [[ -e $folder/sources/loadgen.cc ]]
