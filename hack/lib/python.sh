# Functions for hack/*: interpreters and virtual environments. Sourced by sh.

candidates() { # pyenv's own folders come by path: its shims answer for the active version only
	for path in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3; do
		[ -x "$path" ] && echo "$path"
	done
	for name in python3.15 python3.14 python3.13 python3.12 python3.11 python3.10 python3; do
		command -v "$name" || true
	done | grep -v /shims/ || true
	[ -x /usr/bin/python3 ] && echo /usr/bin/python3
}

version_of() { # MAJOR.MINOR as one number, e.g. 311; nothing where it cannot make an environment
	program='import ensurepip, sqlite3, ssl, sys, venv; print(sys.version_info[0] * 100 + sys.version_info[1])'
	"$1" -c "$program" 2>/dev/null || true
}

newest_python() { # newest_python 3.11: the newest interpreter that is at least so new
	least=$((${1%.*} * 100 + ${1#*.}))
	best=$least
	found=
	for path in $(candidates); do
		version=$(version_of "$path")
		if [ -n "$version" ] && [ "$version" -ge "$best" ] && [ "$path" != "$found" ]; then
			[ -n "$found" ] && [ "$version" = "$best" ] && continue
			best=$version
			found=$path
		fi
	done
	[ -n "$found" ] && echo "$found"
}

need_python() { # need_python 3.11: the same, installed with apt where there is none
	newest_python "$1" && return
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "error: no Python $1 or newer with venv here" >&2
		echo "  next: install python3 and python3-venv, then run $0 again" >&2
		exit 69
	fi
	echo "installing python3 python3-venv" >&2
	apt-get -qq update >&2
	apt-get -qq install -y --no-install-recommends python3 python3-venv >/dev/null
	newest_python "$1"
}

exact_python() { # exact_python 3.10: an interpreter of that version
	wanted=$((${1%.*} * 100 + ${1#*.}))
	for path in $(candidates); do
		[ "$(version_of "$path")" = "$wanted" ] && echo "$path" && return
	done
	return 1
}

# environment PYTHON FOLDER STAMPED-FILE PIP-ARGUMENTS...: a virtual environment, remade when the file or
# Python changed
environment() {
	python=$1 folder=$2 stamped=$3
	shift 3
	stamp="$("$python" -VV | cksum) $(cksum <"$stamped") $*"
	[ "$(cat "$folder/installed" 2>/dev/null)" = "$stamp" ] && "$folder/bin/python" -c '' 2>/dev/null && return
	echo "making $folder with $("$python" -V)"
	rm -rf "$folder"
	"$python" -m venv "$folder"
	"$folder/bin/python" -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
	"$folder/bin/python" -m pip install -q --disable-pip-version-check "$@"
	echo "$stamp" >"$folder/installed"
}
