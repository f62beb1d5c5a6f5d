#!/usr/bin/env bash
# The installed copy: a small C program over pkg-config (shared), over the CMake package, and with the
# archive; the header in C++; all of them run. $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
if grep -Eq '^EMBPS_SANITIZE:STRING=.+' "$build/CMakeCache.txt"; then
    echo "a library with sanitizers does not link into plain programs"
    exit 77
fi
prefix=$dir/prefix
cmake --install "$build" --prefix "$prefix" >"$dir/install.log"
libdir=$(dirname "$(find "$prefix" -name embps.pc | head -n 1)")
libdir=${libdir%/pkgconfig}
export PKG_CONFIG_PATH=$libdir/pkgconfig
export LD_LIBRARY_PATH=$libdir

cat >"$dir/main.c" <<'PROGRAM'
#include <embps.h>
int main(int argc, char **argv)
{
    embps_local_options_t local = EMBPS_LOCAL_OPTIONS_DEFAULT;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_client_t *client;
    embps_table_t *table;
    uint64_t id = 42;
    float row[2] = {1.0f, 2.0f}, got[2] = {0.0f, 0.0f};
    local.data = argv[argc - 1];
    options.dim = 2;
    if (embps_connect_local(&local, &client, NULL) != 0 ||
        embps_table_open(client, "t", &options, &table, NULL) != 0 ||
        embps_push(table, EMBPS_DELTA, &id, 1, row, 0.0f, NULL) != 0 ||
        embps_pull(table, &id, 1, got, NULL) != 0 || embps_close(client, NULL) != 0)
        return 1;
    return got[0] == 1.0f && got[1] == 2.0f ? 0 : 2;
}
PROGRAM

run() # NAME PROGRAM
{
    mkdir "$dir/data-$1"
    "$2" "$dir/data-$1"
    echo "$1: runs"
}

# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror -pedantic $(pkg-config --cflags embps) "$dir/main.c" \
    -o "$dir/shared" $(pkg-config --libs embps)
run shared "$dir/shared"

# shellcheck disable=SC2046
cc -std=c11 $(pkg-config --cflags embps) "$dir/main.c" -o "$dir/static" "$libdir/libembps.a" \
    $(pkg-config --libs $(pkg-config --print-requires-private embps)) -pthread -lm
if ldd "$dir/static" | grep -q libembps; then
    echo "the static program still needs libembps.so"
    exit 1
fi
run static "$dir/static"

cp "$dir/main.c" "$dir/main.cpp"
# shellcheck disable=SC2046
g++ -std=c++11 -Wall -Wextra -Werror $(pkg-config --cflags embps) "$dir/main.cpp" \
    -o "$dir/cplusplus" $(pkg-config --libs embps)
run cplusplus "$dir/cplusplus"

mkdir "$dir/project"
cp "$dir/main.c" "$dir/project"
cat >"$dir/project/CMakeLists.txt" <<'PROJECT'
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C)
find_package(embps 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE embps::embps)
add_executable(user_static main.c)
target_link_libraries(user_static PRIVATE embps::embps_static)
PROJECT
cmake -S "$dir/project" -B "$dir/project/build" -DCMAKE_PREFIX_PATH="$prefix" >"$dir/cmake.log"
cmake --build "$dir/project/build" >>"$dir/cmake.log" 2>&1 || { cat "$dir/cmake.log"; exit 1; }
run package "$dir/project/build/user"
run package-static "$dir/project/build/user_static"

# Only the public calls are exported.
foreign=$(nm -D --defined-only "$libdir/libembps.so" | awk '{print $NF}' | grep -v '^embps_[a-z]' || true)
if [ -n "$foreign" ]; then
    printf 'libembps.so exports more than its header: %s\n' "$foreign"
    exit 1
fi
missing=$(grep -oE '\bembps_[a-z_]+\(' "$prefix"/include/embps.h | tr -d '(' | sort -u |
    while read -r name; do
        nm -D --defined-only "$libdir/libembps.so" | grep -q " $name\$" || echo "$name"
    done)
if [ -n "$missing" ]; then
    printf 'libembps.so lacks what its header has: %s\n' "$missing"
    exit 1
fi
