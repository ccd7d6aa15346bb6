"""Tables of known programs: which run other commands, which run code, which only read. This module decides nothing.

A program that is missing here is unknown: it runs under a rule that names it, and not otherwise.
"""

import re
from functools import lru_cache

from msgspec import Struct

from switchtower.core.policy import paths


def split_names(text: str) -> frozenset[str]:
    """Returns a set of names from a text with blanks between them."""
    return frozenset(text.split())


SHELLS = split_names("sh bash dash zsh ksh ksh93 mksh pdksh ash fish csh tcsh rbash")
INTERPRETERS = SHELLS | split_names(
    "python pypy perl ruby node nodejs deno bun tsx ts-node php lua luajit rscript osascript tclsh wish expect pwsh"
    " powershell julia groovy scala jshell irb erl elixir iex ghci runghc guile racket sbcl octave gnuplot m4 jjs"
)
DOWNLOADERS = split_names(
    "curl wget wget2 fetch aria2c axel lynx links w3m http https httpie xh nc ncat netcat socat ftp tftp sftp scp ssh rsync"
    " telnet gh glab aws gsutil gcloud az s3cmd rclone openssl dig nslookup base64 xxd uudecode"
)
"""They also include programs that transform text: when the result is piped into a shell, the code that runs is not visible."""
EDITORS = split_names("vi vim nvim view vimdiff ex ed red emacs emacsclient nano pico less more most man info pg")
DEBUGGERS = split_names("gdb lldb pdb rr radare2 r2 xdg-open open osascript sqlcmd busybox")
"""Every argument of these programs may be code."""
RUN_THEIR_INPUT = split_names(
    "sqlite3 psql mysql mariadb duckdb sqlcmd redis-cli mongosh mongo cqlsh clickhouse-client influx mycli pgcli gdb lldb ed ex"
    " red ftp sftp telnet nc ncat netcat socat ssh mail sendmail bc dc at batch crontab gnuplot octave r rscript docker podman"
    " kubectl oc openssl tclsh wish maxima gp"
)
"""They run, or send, what they read from their standard input: when that is a pipe or a file, no rule covers them."""
STRING_RUNNERS = (
    INTERPRETERS
    | EDITORS
    | split_names(
        "awk gawk mawk nawk sed gsed tar bsdtar gtar make gmake rsync scp sftp gdb lldb find fd fdfind trap alias at batch"
        " ftp zip 7z git eval source . mysql psql sqlite3 mapfile readarray complete bind xdg-open"
    )
)
"""Some of their arguments are code, in a shell or in a language that can call one."""

READERS = split_names(
    "cat head tail wc ls stat file du df nl tac cmp diff md5sum sha1sum sha256sum sha512sum basename dirname realpath"
    " readlink grep egrep fgrep cut tr rev fold column comm paste od hexdump strings tree id whoami uname date which"
)
"""No argument makes them write a file or run a program, except where `arguments` has an exception."""
SPEAKERS = frozenset({"echo", "printf"})
"""Their arguments are text, not names of files."""

SHELL_STATE = split_names(
    "alias unalias export declare typeset local readonly unset set shopt enable hash trap eval exec source . builtin let read"
    " mapfile readarray getopts bind complete compgen compopt ulimit umask history fc fg bg disown pushd popd dirs suspend"
    " logout return break continue shift caller coproc cd chdir"
)
"""Builtins that change what later words mean. No wildcard covers them."""

VERSIONED = re.compile(r"(python|pypy|perl|ruby|node|php|lua|bash|ksh|zsh|vim|gawk|tclsh|ghc)(-?[0-9][0-9.]*)(t|d|w)?$")


GIT_VALUE_OPTIONS = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix", "--config-env"}
)
GIT_COMMANDS = split_names(
    "add am annotate apply archive backfill bisect blame branch bugreport bundle cat-file check-attr check-ignore"
    " check-mailmap check-ref-format checkout checkout-index cherry cherry-pick citool clean clone column commit"
    " commit-graph commit-tree config count-objects credential credential-cache credential-store cvsexportcommit cvsimport"
    " cvsserver daemon describe diagnose diff diff-files diff-index diff-pairs diff-tree difftool fast-export fast-import"
    " fetch fetch-pack filter-branch fmt-merge-msg for-each-ref for-each-repo format-patch fsck fsmonitor--daemon gc"
    " get-tar-commit-id grep gui hash-object help hook http-backend http-fetch http-push imap-send index-pack init init-db"
    " instaweb interpret-trailers log ls-files ls-remote ls-tree mailinfo mailsplit maintenance merge merge-base merge-file"
    " merge-index merge-one-file merge-tree mergetool mktag mktree multi-pack-index mv name-rev notes p4 pack-objects"
    " pack-redundant pack-refs patch-id prune prune-packed pull push quiltimport range-diff read-tree rebase receive-pack"
    " reflog refs remote remote-ext remote-fd repack replace replay request-pull rerere reset restore rev-list rev-parse"
    " revert rm scalar send-email send-pack shell shortlog show show-branch show-index show-ref sparse-checkout stage stash"
    " status stripspace submodule subtree svn switch symbolic-ref tag unpack-file unpack-objects update-index update-ref"
    " update-server-info upload-archive upload-pack var verify-commit verify-pack verify-tag version web--browse"
    " whatchanged worktree write-tree lfs"
)
"""The subcommands that are built into git: any other is an alias, or a program called `git-…`."""


class Wrapper(Struct, frozen=True):
    """A program that runs the command behind its own options."""

    verbs: frozenset[str] = frozenset()
    """It does so only with one of these among its first words."""
    operands: int = 0
    """The number of the wrapper's own words before the command."""
    values: frozenset[str] = frozenset()
    """Options that take the next word."""
    flags: frozenset[str] = frozenset()
    """Options that do not."""
    feeds: bool = False
    """It adds words that are not visible in the command."""


def _make_wrapper(verbs: str = "", *, operands: int = 0, values: str = "", flags: str = "", feeds: bool = False) -> Wrapper:
    return Wrapper(frozenset(verbs.split()), operands, frozenset(values.split()), frozenset(flags.split()), feeds)


_PLAIN = _make_wrapper()
WRAPPERS: dict[str, Wrapper] = {
    **dict.fromkeys(
        split_names(
            "nohup setsid time command builtin exec eval chronic fakeroot rlwrap unbuffer catchsegv valgrind ltrace firejail"
            " bwrap proot numactl prlimit setarch linux32 linux64 dbus-run-session xvfb-run daemonize start-stop-daemon"
            " systemd-run ssh-agent setpriv capsh hyperfine entr watchexec nodemon tmux screen torsocks torify proxychains"
            " proxychains4 tsocks caffeinate arch ts coproc busybox toybox dotenv direnv mise asdf rtx nix-shell guix"
            " flatpak-spawn distrobox toolbox pkexec sem rush op doppler aws-vault chamber with-contenv s6-setuidgid setuidgid"
            " softlimit envdir tini dumb-init cgexec xterm gnome-terminal konsole kitty alacritty wezterm foot urxvt rxvt"
            " x-terminal-emulator eatmydata faketime cpulimit chpst systemd-inhibit choom uclampset trickle fakechroot"
            " ld-linux-x86-64.so.2 ld-linux.so.2 ld-linux-aarch64.so.1 ld.so qemu-x86_64 qemu-aarch64 rr gosh dbus-launch setarch"
        ),
        _PLAIN,
    ),
    "env": _make_wrapper(values="-u --unset -C --chdir", flags="-i - -0 --null -v"),
    "nice": _make_wrapper(values="-n --adjustment"),
    "ionice": _make_wrapper(values="-c -n -p", flags="-t"),
    "chrt": _make_wrapper(operands=1),
    "taskset": _make_wrapper(operands=1, flags="-c"),
    "timeout": _make_wrapper(operands=1, values="-k -s --signal --kill-after", flags="--preserve-status --foreground -v"),
    "gtimeout": _make_wrapper(operands=1),
    "stdbuf": _make_wrapper(values="-i -o -e"),
    "watch": _make_wrapper(values="-n --interval", flags="-d -t -g -x"),
    "script": _make_wrapper(values="-c"),
    "flock": _make_wrapper(operands=1, flags="-n -x -s"),
    "xargs": _make_wrapper(values="-n -I -P -d -L -s -a -E", flags="-0 -r -t -p", feeds=True),
    "parallel": _make_wrapper(feeds=True),
    "find": _make_wrapper("-exec -execdir -ok -okdir", feeds=True),
    "fd": _make_wrapper("-x -X --exec --exec-batch", feeds=True),
    "fdfind": _make_wrapper("-x -X --exec --exec-batch", feeds=True),
    "sudo": _make_wrapper(values="-u -g -p -h -C -T -r -t -U -D -R"),
    "doas": _make_wrapper(values="-u -C"),
    "su": _PLAIN,
    "runuser": _PLAIN,
    "gosu": _make_wrapper(operands=1),
    "su-exec": _make_wrapper(operands=1),
    "chroot": _make_wrapper(operands=1),
    "unshare": _PLAIN,
    "nsenter": _PLAIN,
    "strace": _make_wrapper(values="-e -o -p -s -u", flags="-f -c -t -v"),
    "perf": _make_wrapper("stat record trace"),
    "ssh": _make_wrapper(operands=1, values="-i -p -l -o -F -J -L -R -D -W -b -c -e -E -I -m -O -Q -S -w"),
    "sshpass": _make_wrapper(values="-p -f -d"),
    "docker": _make_wrapper(
        "exec run", operands=1, values="-e -u -w -v -p --name --user --workdir --env", flags="-i -t -it -ti -d --rm"
    ),
    "podman": _make_wrapper(
        "exec run", operands=1, values="-e -u -w -v -p --name --user --workdir --env", flags="-i -t -it -ti -d --rm"
    ),
    "docker-compose": _make_wrapper("exec run", operands=1),
    "kubectl": _make_wrapper("exec run debug", operands=1, values="-n -c --namespace --container", flags="-i -t -it --"),
    "oc": _make_wrapper("exec run rsh", operands=1),
    "lxc": _make_wrapper("exec", operands=1),
    "vagrant": _make_wrapper("ssh"),
    "adb": _make_wrapper("shell"),
    "uv": _make_wrapper("run x tool"),
    "uvx": _PLAIN,
    "pipx": _make_wrapper("run"),
    "poetry": _make_wrapper("run"),
    "pipenv": _make_wrapper("run"),
    "pdm": _make_wrapper("run"),
    "hatch": _make_wrapper("run"),
    "rye": _make_wrapper("run"),
    "conda": _make_wrapper("run", values="-n -p"),
    "mamba": _make_wrapper("run", values="-n -p"),
    "bundle": _make_wrapper("exec"),
    "rbenv": _make_wrapper("exec"),
    "pyenv": _make_wrapper("exec"),
    "npx": _make_wrapper(flags="-y --yes"),
    "bunx": _PLAIN,
    "npm": _make_wrapper("exec x"),
    "pnpm": _make_wrapper("exec dlx"),
    "yarn": _make_wrapper("exec dlx node"),
    "cargo": _make_wrapper("watch"),
    "nix": _make_wrapper("run shell develop"),
    "git": _make_wrapper("foreach bisect filter-branch"),
    "opam": _make_wrapper("exec"),
    "stack": _make_wrapper("exec"),
    "cabal": _make_wrapper("exec"),
}


def normalize_program_name(text: str) -> str:
    """Returns a program's name without its folder, its version and its case."""
    return _short_base_name(text) if len(text) <= _SHORT else _compute_base_name(text)


def _compute_base_name(text: str) -> str:
    name = paths.normalize_name(text).rsplit("/", 1)[-1].removesuffix(".exe")
    versioned = VERSIONED.match(name)
    return versioned[1] if versioned else name


_SHORT = 64
_short_base_name = lru_cache(maxsize=1024)(_compute_base_name)
"""The same few words are checked many times in one decision."""
