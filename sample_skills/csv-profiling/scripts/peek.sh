#!/bin/sh
# Look at the bytes of a delimited file before anything interprets them.
# Usage: peek.sh FILE [ROWS]
set -eu

if [ $# -lt 1 ] || [ ! -f "$1" ]; then
    echo "usage: peek.sh FILE [ROWS]" >&2
    exit 2
fi
file=$1
rows=${2:-5}
# Bytes, not characters: the encoding is not known yet.
LC_ALL=C
export LC_ALL

count() { tr -dc "$1" <"$file" | wc -c | tr -d ' '; }

lines=$(count '\n')
crs=$(count '\r')
nuls=$(count '\000')
case $(head -c 4 "$file" | od -An -tx1 | tr -d ' \n') in
    efbbbf*) bom="UTF-8" ;;
    fffe0000 | 0000feff) bom="UTF-32" ;;
    fffe* | feff*) bom="UTF-16" ;;
    *) bom="none" ;;
esac

echo "size:            $(wc -c <"$file" | tr -d ' ') bytes"
echo "newlines (LF):   $lines"
echo "returns (CR):    $crs"
echo "byte-order mark: $bom"
echo "NUL bytes:       $nuls"

first=$(head -n 1 "$file" | tr -d '\000\r')
for delimiter in ',' ';' '|' '\t'; do
    n=$(printf '%s' "$first" | tr -dc "$delimiter" | wc -c | tr -d ' ')
    echo "in first line:   $n x '$delimiter'"
done

echo "--- first $rows rows"
head -n "$((rows + 1))" "$file" | cut -c 1-200
if [ "$lines" -gt "$((rows * 3))" ]; then
    echo "--- $rows rows spread over the file"
    awk -v step="$((lines / rows))" -v max="$rows" \
        'NR > 1 && NR % step == 0 && shown < max { shown++; print NR ": " substr($0, 1, 200) }' "$file"
fi
