#!/bin/sh
# Makes the two subsets of Inter that PNG figures are drawn with, from the npm
# package that carries the full fonts. Needs npm, tar and fonttools' pyftsubset.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"
npm pack --silent @expo-google-fonts/inter@0.4.2
tar xf expo-google-fonts-inter-0.4.2.tgz
# Latin, Greek, Cyrillic, and the signs that numbers and thresholds need.
characters=U+0020-017F,U+0370-03FF,U+0400-045F,U+2009-2030,U+2032,U+2070-2079
characters=$characters,U+2080-2089,U+2190-2193,U+2212,U+221E,U+2248,U+2260,U+2264,U+2265
for weight in 400Regular 600SemiBold; do
    pyftsubset "package/$weight/Inter_$weight.ttf" --unicodes="$characters" \
        --layout-features=kern,tnum,mark,ccmp --no-hinting --name-IDs='*' \
        --output-file="$here/Inter-${weight#?00}.ttf"
done
cp package/LICENSE_FONT "$here/LICENSE"
