"""Compilers, build tools and test runners of compiled languages, and of infrastructure."""

TEXT = r"""
[make gmake]
: jobs keep-going always-make dry-run just-print recon silent quiet question no-print-directory print-directory
  ignore-errors output-sync load-average trace debug touch warn-undefined-variables no-builtin-rules no-builtin-variables
  no-keep-going stop print-data-base version help -j:kBnsqrRStwdil:pvO:

[ninja]
: verbose quiet version help -vj:k:l:nd:

[just]
: list summary dry-run quiet verbose color show help version -lnqvs:

[rake]
: tasks prereqs dry-run silent quiet trace verbose help version -TPnsqtvW

[task]
: list list-all parallel dry silent status summary verbose watch help version -lapnsvw

[cmake]
$cmake: build parallel target verbose clean-first preset version help -j:vN
: $cmake

[ctest]
: verbose extra-verbose output-on-failure parallel quiet tests-regex exclude-regex label-regex label-exclude rerun-failed
  stop-on-failure timeout repeat show-only progress preset build-config help version -VR:E:L:j:QC:N

[meson]
:
compile: jobs verbose clean -j:v
test: verbose list suite no-suite quiet num-processes print-errorlogs repeat no-rebuild timeout-multiplier benchmark -vqj:t:
introspect: all targets tests dependencies buildoptions projectinfo indent
!setup: buildtype reconfigure wipe

[bazel]
:
build|test|coverage: keep_going verbose_failures test_output jobs compilation_mode test_filter nocache_test_results
  runs_per_test cache_test_results test_verbose_timeout_warnings color curses -kj:c:s
query|cquery|info|version|clean: output keep_going -k
!run: jobs

[gradle gradlew]
$gradle: info debug quiet stacktrace full-stacktrace daemon no-daemon offline parallel no-parallel continue no-continue
  rerun-tasks tests console warning-mode build-cache no-build-cache dry-run refresh-dependencies configuration-cache
  max-workers status stop exclude-task continuous all fail-fast help version -qidsSx:tmhv
: $gradle
@operand [\w:.*-]+

[mvn mvnw]
@dash
: q quiet B batch-mode e errors X debug o offline U update-snapshots T threads pl projects am also-make amd
  also-make-dependents fae fail-at-end ff fail-fast fn ntp no-transfer-progress rf resume-from N non-recursive V
  show-version v version h help DskipTests DskipITs Dtest Dit.test Dmaven.test.skip DfailIfNoTests
  Dsurefire.failIfNoSpecifiedTests
@operand [\w.,/-]+|dependency:tree|dependency:analyze|dependency:resolve

[sbt]
: version help no-colors batch
@operand [\w/-]+

[ant]
@dash
: q quiet v verbose d debug k keep-going p projecthelp version help e emacs
@operand [\w.-]+

[cargo]
$tests: nocapture test-threads exact ignored include-ignored show-output skip
$cargo: release workspace all all-targets all-features features no-default-features package exclude bin bins example
  examples lib test tests bench benches verbose quiet locked offline frozen message-format jobs keep-going no-run
  no-fail-fast profile doc color timings help $tests -vqrp:j:F:
: version list help verbose quiet locked offline frozen color -Vvq
build|b|check|c|test|t|bench|doc|d|clippy: $cargo no-deps document-private-items all-benches
run|r: $cargo
fmt: all check verbose quiet -vq
tree: depth prefix invert duplicates edges features package workspace all-features target no-default-features format charset
  -id:p:e:f:
metadata: format-version no-deps offline locked all-features
search: limit
version|help|verify-project|locate-project|pkgid: verbose message-format workspace -v
clean: release package doc dry-run -p:rn
nextest run|nextest list: $cargo retries partition run-ignored no-capture fail-fast success-output failure-output
audit|outdated|deny check|machete|udeps: $cargo
!update: package precise dry-run recursive workspace $cargo
!add: dev build features no-default-features optional package dry-run $cargo
!remove|!rm: dev build package dry-run
!install: version locked force quiet features bin -qf
!generate-lockfile|!fetch|!vendor|!package|!new|!init: quiet verbose locked offline lib bin name edition allow-dirty
  no-verify list -qv

[rustc]
: version verbose print help explain -vV

[rustup]
:
show|check|which|doc: verbose
toolchain list|target list|component list: installed toolchain verbose -v
!update|!default|!toolchain install|!target add|!component add: toolchain

[go]
@dash
: h help
test: v run skip bench benchmem benchtime count race cover covermode coverpkg short timeout parallel cpu failfast json tags
  list shuffle p n x mod trimpath buildvcs fullpath a
build|vet|list|install.: v race tags p n x a mod json deps test m e f u find trimpath buildvcs cover
run: race tags v mod
fmt: n x
doc: all c cmd short src u
version: m v
env: json changed
mod tidy: v e diff go compat
mod graph|mod verify|mod why|mod download: v x json m vendor
work sync:
help:
!generate|!clean: v x n run skip i r cache testcache
!get: u t v d tool
!mod init|!mod vendor: v
@refuse @

[gofmt]
: -lds

[golangci-lint]
: version help
run: verbose timeout fast tests new new-from-rev disable enable enable-all disable-all build-tags concurrency
  max-issues-per-linter max-same-issues color allow-parallel-runners -vD:E:j:
linters: json

[staticcheck]
@dash
: checks tests f fail tags go explain version show-ignored

[gcc g++ cc c++ clang clang++]
@dash
: version v dumpversion dumpmachine print-search-dirs c S E g g0 g1 g2 g3 ggdb O O0 O1 O2 O3 Os Og Ofast Wall Wextra Werror
  Wpedantic pedantic Wshadow Wconversion w std fsyntax-only pthread fPIC fPIE shared static M MM lm lpthread ldl fsanitize
  march mtune

[javac]
@dash
: version Xlint Xlint:all verbose deprecation nowarn g source target release parameters help encoding

[java]
@dash
: version showversion help

[dotnet]
: version info list-sdks list-runtimes help
build|test|run|clean|restore.|format|pack.: configuration no-build no-restore verbosity framework runtime filter nologo
  list-tests blame verify-no-changes force no-incremental project -c:v:f:r:
list package|list reference: outdated vulnerable deprecated include-transitive
!add package|!remove package|!tool restore|!publish: version configuration runtime self-contained -c:r:v:

[swift]
: version help
build|test|run: configuration verbose quiet parallel filter skip list-tests enable-code-coverage jobs target product
  show-bin-path -c:vqj:
package describe|package show-dependencies|package resolve: type format

[xcodebuild]
@dash
: list version showsdks showBuildSettings scheme target configuration sdk destination project workspace quiet json
  only-testing skip-testing parallel-testing-enabled

[zig]
:
build|test|fmt|version|env|targets: check summary verbose help
@operand [\w./-]+

[mix]
: version help
test: trace seed only exclude include cover failed stale max-failures slowest color no-color partitions
compile: force warnings-as-errors verbose all-warnings
format: check-formatted dry-run
credo|dialyzer|deps|deps.get|deps.tree|hex.outdated|phx.routes|help|xref: all strict format only except

[bundle]
: version help
list|show|info|outdated|check|platform: paths name-only-group only-group groups parseable strict
install.: jobs quiet retry local deployment without path-only -j:
!update|!add: conservative all group version

[gem]
: version help
list|search|info|specification|environment|outdated|dependency|contents|which: local remote all exact versions details
  -lradei
!install: version no-document conservative -v:N

[rspec]
: format example tag only-failures next-failure fail-fast no-fail-fast profile seed order backtrace color no-color
  force-color dry-run warnings help version -e:f:t:pbcw

[rubocop]
: format only except lint parallel display-cop-names extra-details fail-level fail-fast display-only-fail-level-offenses
  color no-color list-target-files help version -f:lDELSPV

[rails]
:
test|routes|stats|about|notes|version|zeitwerk:check|db:version|db:migrate:status: name verbose fail-fast defer-output
  controller grep expanded backtrace seed -n:vfc:g:Eb

[composer]
: version help no-ansi ansi quiet verbose no-interaction -vqn
install.: no-dev prefer-dist no-scripts no-progress optimize-autoloader dry-run no-plugins
show|outdated|validate|why|depends|why-not|prohibits|licenses|audit|diagnose|check-platform-reqs|search|dump-autoload: tree
  direct latest format all strict no-check-publish optimize locked -tDlao
!require|!remove|!update: dev no-update with-all-dependencies no-progress dry-run
test|lint|check|analyse|cs|stan:

[phpunit]
: filter testsuite group exclude-group stop-on-failure stop-on-error verbose debug testdox colors list-tests list-suites
  list-groups no-coverage order-by random-order process-isolation help version -vh

[phpstan]
: version
analyse|analyze: level no-progress error-format memory-limit ansi no-ansi -l:v

[terraform]
@dash
: version help
fmt: check diff recursive list write
validate|providers|version|graph|show: json no-color
plan: no-color detailed-exitcode input lock refresh refresh-only compact-warnings parallelism target
output: json raw no-color
state list|state show|workspace list|workspace show: no-color
!init: upgrade input no-color reconfigure backend

[helm]
: version help
list|status|history|search repo|search hub|show chart|show values|show readme|get values|get manifest|get notes|lint|
  template|dependency list|env|version: namespace all-namespaces output all revision max values-only strict debug set
  version short quiet -n:Ao:aq

[ansible-playbook]
: check diff list-hosts list-tasks list-tags syntax-check limit tags skip-tags version help -CDl:t:v

[ansible-lint]
: parseable quiet strict offline list-rules list-tags version help -pqL

[hadolint]
: format no-fail no-color verbose ignore failure-threshold version help -f:t:V

[vagrant]
: version help
status|global-status|version|port|box list|snapshot list:
"""
