# shellcheck shell=bash
# Sourced by the scripts beside it.
# find_python: sets `python` to PYTHON or python3; status 2 with a sentence where there is no such program.
find_python() {
    python="${PYTHON:-python3}"
    command -v "$python" >/dev/null || {
        echo "There is no program $python. Set PYTHON to a Python of version 3.11 or newer." >&2
        return 2
    }
}

# python_of VERSION: prints a Python of this version from PATH or pyenv; status 1 where there is none.
python_of() {
    local program
    for program in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        # Programs of pyenv on PATH fail where another version is chosen.
        "$program" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null && echo "$program" && return
    done
    return 1
}

# environment NAME REQUIREMENT…: makes a virtual environment once and activates it. What follows NAME goes to pip, of a
# version that knows --group: those that Python 3.11 to 3.13 bring are older. Before --require-hashes nothing else is
# installed.
environment() {
    local folder=".venv-$1" programs=bin install
    [ "${OS:-}" != Windows_NT ] || programs=Scripts
    shift
    find_python || return
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "Python 3.11 or newer is needed; $("$python" --version 2>&1) was found. Set PYTHON to another one." >&2
        return 1
    }
    local stamp
    stamp="$folder/installed-$({ echo "$*" && cat pyproject.toml gpukpca/_version.py ci/build_tools.txt; } | cksum | cut -d' ' -f1)"
    if [ ! -e "$stamp" ]; then
        rm -rf "$folder"
        "$python" -m venv "$folder" || return
        # Modules are compiled when they are first imported: most never are.
        install=("$folder/$programs/python" -m pip install --quiet --disable-pip-version-check --no-compile)
        [ "$1" = --require-hashes ] || "${install[@]}" "pip>=25.1" || return
        "${install[@]}" "$@" || return
        touch "$stamp"
    fi
    # Where Python may not store what it compiled, every process that the tests start compiles NumPy and its like again.
    unset PYTHONDONTWRITEBYTECODE
    # shellcheck disable=SC1090
    . "$folder/$programs/activate"
}
