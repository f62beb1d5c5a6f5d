#!/usr/bin/env bash
# The Python package as a user installs it: pip, offline, into a venv that sees Debian's packages; the
# library within it; archives. $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
if grep -Eq '^EMBPS_SANITIZE:STRING=.+' "$build/CMakeCache.txt"; then
    echo "skipped: a library with sanitizers does not load into a plain python"
    exit 77
fi
python=/usr/bin/python3 # Debian's own, which has Debian's numpy
if ! $python -c 'import numpy, venv, ensurepip' 2>/dev/null; then
    echo "skipped: no python3-numpy or no python3-venv; scripts/setup --tests installs them"
    exit 77
fi
unset EMBPS_LIBRARY PYTHONPATH
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
$python -m venv --system-site-packages venv
venv/bin/pip install -q --config-settings "build=$build" "$root/worker/python"

use='
import embps, numpy, pathlib, sys
inside = pathlib.Path(embps.__file__).parent
assert sys.prefix in str(inside), inside
assert (inside / "py.typed").is_file() and (inside / "libembps.so").is_file()
with embps.connect("local:" + sys.argv[1]) as client:
    table = client.table("t", 2)
    table.push_delta([7], [[1.0, 2.0]])
    assert table.pull([7]).tolist() == [[1.0, 2.0]]
'
venv/bin/python -c "$use" data
version=$(venv/bin/python -c '
import embps, importlib.metadata
print(embps.__version__)
assert importlib.metadata.version("embps") == embps.__version__, "the library is another version"')
files=$(find "$root/worker/python" -name '*.egg-info' -o -name dist -o -name 'libembps.so*')
if [ -n "$files" ]; then
    printf 'left in the tree: %s\n' "$files"
    exit 1
fi

# An editable one leads to the tree and finds the library that is named; it has none of its own.
venv/bin/pip install -q -e "$root/worker/python"
EMBPS_LIBRARY=$build/libembps.so PYTHONDONTWRITEBYTECODE=1 venv/bin/python -c "
import embps
assert embps.__file__.startswith('$root/'), embps.__file__"
if venv/bin/pip install -q --config-settings "build=$build" -e "$root/worker/python" 2>editable.log ||
    ! grep -q "set EMBPS_LIBRARY=$build/libembps.so where embps is imported" editable.log; then
    echo "a folder that an editable installation does not use was accepted, or not told"
    exit 1
fi

# A name that is wrong is told, and a tree that is not built.
if EMBPS_LIBRARY=$dir/nothing venv/bin/pip wheel -q --no-deps -w wheels "$root/worker/python" 2>wheel.log ||
    ! grep -q 'EMBPS_LIBRARY: .*/nothing is no file' wheel.log; then
    echo "a library that is not there was accepted, or not named"
    exit 1
fi

mkdir -p tree/worker
cp -r "$root/worker/python" tree/worker
touch tree/CMakeLists.txt
if venv/bin/pip wheel -q --no-deps -w wheels tree/worker/python 2>unbuilt.log ||
    ! grep -q 'no .*/tree/build/libembps.so: build embps first' unbuilt.log; then
    echo "a tree that is not built was accepted, or not told"
    exit 1
fi
if venv/bin/pip wheel -q --no-deps -w wheels --config-settings build=none tree/worker/python 2>unbuilt.log ||
    ! grep -q 'build=none: there is no .*/none/libembps.so' unbuilt.log; then
    echo "a folder without the library was accepted, or not named"
    exit 1
fi

# The archive of sources builds a wheel for any platform, where there is no library.
mkdir archive
(cd "$root/worker/python" && PYTHONPATH=backend PYTHONDONTWRITEBYTECODE=1 \
    $python -c "import embps_backend; print(embps_backend.build_sdist('$dir/archive'))") >archive.name
venv/bin/pip wheel -q --no-deps -w wheels "archive/$(cat archive.name)"
if [ "$(cd wheels && echo ./*)" != "./embps-$version-py3-none-any.whl" ]; then
    echo "not one pure wheel: $(ls wheels)"
    exit 1
fi
