#!/bin/sh
# Puts what the image holds into a folder: its packages, its jars, tidegate itself.
#
#     docker/install.sh packages|jars|tidegate FOLDER      into FOLDER/venv, FOLDER/jars and FOLDER/kafka
#
# In the order given. Everything comes from the project's locks, and each download is hashed.
set -eu
step=$1
folder=$2
python=$folder/venv/bin/python
cd "$(dirname "$0")/.."

case $step in
packages)
    python3.11 -m venv "$folder/venv"
    "$python" -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r tools/bootstrap.lock
    # No build isolation: source packages are built with the locked setuptools, not with whatever is newest today.
    "$folder/venv/bin/uv" pip install --quiet --python "$python" --no-build-isolation --compile-bytecode \
        --require-hashes -r docker/requirements.lock
    ;;
jars)
    "$python" -m tools.jars fetch kafka-broker
    mkdir -p "$folder/jars" "$folder/kafka"
    cp .tools/kafka/libs/*.jar "$folder/kafka"
    ;;
tidegate)
    # In a folder of its own: setuptools packs whatever an earlier build has left beside the sources.
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cp -R pyproject.toml README.md LICENSE src "$work"
    "$folder/venv/bin/uv" pip install --quiet --python "$python" --no-build-isolation --no-deps --offline \
        --compile-bytecode "$work"
    # The makers of the examples' data are no part of the package; here the examples are what a team tries first.
    site=$("$python" -c 'import tidegate; print(tidegate.__path__[0])')
    cp -R src/tidegate/examples "$site"
    "$python" -m compileall -q "$site/examples"
    # What installed all this has no business in an image that runs.
    "$python" -m pip uninstall --quiet --yes uv setuptools
    "$python" -m pip uninstall --quiet --yes pip
    ;;
*)
    echo "error: unknown step: $step" >&2
    echo "  fix: docker/install.sh packages|jars|tidegate FOLDER" >&2
    exit 1
    ;;
esac
