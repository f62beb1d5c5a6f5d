#!/bin/bash
# The README's list of programs and options is what the programs' --help says.
set -u
scripts=$(dirname "$0")/../../scripts
exec "$scripts/readme-options" --check "$1"
