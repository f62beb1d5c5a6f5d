#!/bin/bash
# scripts/dictionary-text keeps a dictionary's prose and nothing else.
set -u
folder=$2
script=$(dirname "$0")/../../scripts/dictionary-text

gzip -c >"$folder/sample.dict.dz" <<'DICT'
00-database-info
   This file was converted from the original database.

A \A\ (named [=a] in the English).
   The first letter of the English alphabet.
   [1913 Webster]

Lighthouse \Light"house`\ (l[imac]t"hous`), n.; pl.
   {Lighthouses} (l[imac]t"houz`[e^]z).
   A tower with a powerful light at top, erected at the
   entrance of a port.
   [1913 Webster]

         Who was pre["e]minent in ships?          --Sir T. Browne.

   Syn: To thicken (Physiol. Chem.), 17 times.
DICT
cat >"$folder/expected" <<'TEXT'
a the first letter of the english alphabet
lighthouse lighthouses a tower with a powerful light at top erected at the entrance of a port
who was preeminent in ships
syn to thicken times
TEXT
"$script" "$folder/sample.dict.dz" >"$folder/got" || exit 1
diff -u "$folder/expected" "$folder/got" || exit 1
if "$script" "$folder/none" 2>/dev/null; then
    echo "a missing file was accepted"
    exit 1
fi
