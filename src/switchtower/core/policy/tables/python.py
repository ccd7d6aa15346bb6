"""Python: test runners, linters, type checkers, package managers."""

TEXT = r"""
[pytest py.test]
: quiet verbose exitfirst maxfail last-failed lf failed-first ff new-first nf stepwise sw stepwise-skip collect-only co tb
  showlocals no-showlocals no-header no-summary durations durations-min capture color code-highlight markers fixtures
  fixtures-per-test strict-markers strict-config runxfail setup-show setup-only setup-plan ignore ignore-glob deselect
  doctest-modules doctest-continue-on-failure keep-duplicates cache-show cache-clear show-capture full-trace
  disable-warnings disable-pytest-warnings verbosity xfail-tb no-cov numprocesses dist maxprocesses timeout reruns
  random-order asyncio-mode benchmark-only benchmark-skip benchmark-disable snapshot-update run-slow runslow hypothesis-seed
  hypothesis-show-statistics import-mode trace-config noconftest help version -qvxsk:m:lr:n:hV

[ruff]
$ruff: fix fix-only diff show-fixes no-fix unsafe-fixes watch no-cache statistics select ignore extend-select extend-ignore
  output-format preview no-preview target-version line-length respect-gitignore exclude force-exclude exit-zero
  exit-non-zero-on-fix show-files show-settings check quiet verbose silent ignore-noqa per-file-ignores color -wqvsen
: version help
check|format|rule|linter|version|analyze graph: $ruff

[black]
: check diff color no-color line-length target-version skip-string-normalization skip-magic-trailing-comma preview fast safe
  quiet verbose include exclude extend-exclude force-exclude workers required-version pyi help version -l:t:SCqvW:h

[isort]
: check check-only diff profile line-length quiet verbose float-to-top atomic filter-files gitignore skip skip-glob
  known-first-party known-third-party color jobs show-files version help -cl:qvj:s:

[autopep8]
: diff aggressive max-line-length select ignore list-fixes recursive verbose exit-code help version -darvj:

[mypy]
: strict ignore-missing-imports show-error-codes no-error-summary pretty no-pretty verbose warn-unused-ignores
  warn-return-any warn-redundant-casts warn-unreachable disallow-untyped-defs disallow-any-generics disallow-incomplete-defs
  disallow-untyped-calls check-untyped-defs no-implicit-optional strict-equality no-incremental incremental follow-imports
  python-version platform namespace-packages explicit-package-bases show-column-numbers show-error-context
  show-absolute-path show-traceback tb exclude enable-error-code disable-error-code no-site-packages package module
  no-color-output hide-error-codes allow-untyped-decorators local-partial-types help version -p:m:vhV

[pyright]
: watch stats verbose outputjson level skipunannotated warnings pythonversion pythonplatform dependencies help version -whv

[flake8]
: max-line-length max-complexity select ignore extend-ignore extend-select exclude extend-exclude filename statistics count
  show-source no-show-source format quiet verbose jobs exit-zero per-file-ignores doctests benchmark help version -qvj:h

[pylint]
: disable enable errors-only jobs score recursive ignore ignore-patterns ignore-paths fail-under fail-on max-line-length
  msg-template list-msgs help-msg reports py-version verbose help version -d:e:Ej:r:s:vh

[bandit]
: recursive aggregate number skip tests severity-level confidence-level format quiet verbose exclude exit-zero help version
  -ra:n:s:t:lif:qvx:h

[pydocstyle]
: convention select ignore add-ignore match count explain source verbose help version -esvd

[vulture]
: min-confidence exclude ignore-names ignore-decorators sort-by-size verbose help version -v

[radon]
:
cc|mi|raw|hal: average total-average show min max json show-closures exclude order no-assert -asnx:je:o:

[coverage]
: version help
report: show-missing skip-covered skip-empty fail-under precision include omit sort format ignore-errors -m
debug.|combine.|erase: keep append quiet -aq
!run: branch append parallel-mode source include omit -ap
!html|!xml|!json|!lcov: show-contexts fail-under skip-covered title

[tox]
: listenvs listenvs-all recreate parallel quiet verbose skip-missing-interpreters notest colored showconfig help version
  -e:lrp:qvm:
run|r|list|l|config|c|p|run-parallel|depends|d|quickstart.: recreate parallel skip-missing-interpreters -e:rp:m:

[nox]
: list sessions keywords tags python reuse-existing-virtualenvs stop-on-first-error error-on-missing-interpreters no-install
  non-interactive verbose help version -ls:k:t:p:rRxNvh

[pip]
$pip: quiet verbose no-color disable-pip-version-check no-input timeout retries -qv
: version help $pip -V
*: $pip help
list|show|freeze|check|debug|inspect|index versions|help|hash: outdated uptodate format user local editable exclude
  exclude-editable include-editable not-required files all pre verbose path-only json -ouleaf
config get|config list|config debug|cache info|cache list|cache dir: user global site
!install: upgrade requirement no-deps user pre dry-run no-cache-dir force-reinstall upgrade-strategy constraint
  break-system-packages only-binary -Ur:c:
!uninstall: yes requirement -yr:
!download|!wheel: no-deps requirement only-binary -r:
@operand (?!\.)[\w.\[\],=<>!~-]+(?<!\.whl)(?<!\.zip)(?<!\.gz)

[pipx]
:
list|environment: short json include-injected
!install|!upgrade|!uninstall|!inject: force quiet

[uv]
$uv: quiet verbose offline no-progress color locked frozen no-sync all-extras extra group all-groups no-dev dev package
  all-packages dry-run -qv
: version help $uv -V
*: $uv help
sync.|lock|tree|version: upgrade depth invert outdated check prune no-dedupe active exact inexact -U
pip list|pip show|pip freeze|pip check|pip tree|python list|python find|tool list|cache dir|tool dir|python dir: outdated
  format all-versions only-installed show-paths strict editable exclude
!add|!remove|!pip install|!pip uninstall|!pip sync|!pip compile: upgrade dev no-deps optional raw-sources requirement bounds
  -Ur:
!build: sdist wheel
!venv: seed clear
!init: lib app name
!tool install|!tool upgrade|!python install: all force

[poetry]
: version help quiet verbose no-interaction no-ansi ansi -Vqvn
*: quiet verbose no-interaction no-ansi no-root no-dev with without only all-extras sync dry-run all tree latest outdated
  top-level why help -qvnlto
show|check|env info|env list|version.|config --list|search|about|debug info|lock|install.: strict full-path path-only
  no-update short lock -ps
!add|!remove|!update|!self update: group dev extras optional lock -D
!build: format -f:
!config:

[pdm]
:
list|info|show|outdated|lock|config.: tree graph freeze json packages
install.|sync.: dev prod no-self no-editable check dry-run group -dG:
!add|!remove|!update: dev group -dG:

[hatch]
: version help
env show|env find|version.|status|fmt|test|dep show table: check cover parallel randomize python all retries quiet -cparq
!build: clean target

[pipenv]
: version help
graph|check|verify|--venv|--where|requirements|scripts: bare json reverse dev hash
sync.|install.: dev deploy ignore-pipfile -d
!uninstall|!update|!lock: dev -d

[conda]
: version help
list|info|search|env list|config --show|doctor: json envs name full-name all -n:e
!install|!create|!update|!remove: name yes quiet dry-run -n:yq

[pre-commit]
:
run: all-files files verbose show-diff-on-failure color from-ref to-ref -avs:o:
validate-config|validate-manifest|sample-config|help: color
!install|!autoupdate|!clean|!gc|!uninstall: color

[twine]
:
check: strict

[jupyter]
: version help paths
kernelspec list|server list|lab list|notebook list|troubleshoot: json

[sphinx-build]
: quiet fresh-env write-all fail-on-warning keep-going nitpicky jobs builder version help -b:qEaWnj:vTN

[mkdocs]
: version help
build|serve: strict clean dirty quiet verbose no-livereload -scqv

[alembic]
:
current|history|heads|branches|show|check: verbose rev-range indicate-current -vr:i
!upgrade|!downgrade|!stamp: sql

[django-admin]
: version
check|diffsettings|showmigrations: deploy plan list verbosity -lpv:

[celery]
:
status|report|inspect active|inspect ping|inspect stats|inspect registered: timeout json -t:

[http]
: headers body verbose check-status timeout follow print pretty style ignore-stdin offline help version -hbvFI
@operand (?!.*[=@])[^:]*(:.*)?
"""
