"""JavaScript: package managers, test runners, linters, bundlers."""

TEXT = r"""
[npm]
$npm: silent if-present workspaces workspace include-workspace-root loglevel json long parseable depth all omit include
  no-color no-audit no-fund dry-run offline prefer-offline foreground-scripts only production -sw:
: silent quiet version help no-color -svq
*: $npm
test|t|tst|start|stop|restart|run|run-script|rum|urn: watch watchAll coverage verbose silent quiet ci bail runInBand
  testNamePattern testPathPattern grep reporter= color no-color colors fix debug help version updateSnapshot passWithNoTests
  maxWorkers run production mode port prod strict check noEmit project-name only-changed onlyChanged no-cache headless
  workers forbid-only recursive timeout -t:
ls|list|ll|la|outdated|view|v|info|show|why|explain|ping|doctor|fund|prefix|root|bin|help|search|find|query|sbom|whoami:
audit.: audit-level
config get|config list|config ls|c get|get:
install.|i.|ci|clean-install|install-test.: ignore-scripts legacy-peer-deps no-optional no-save package-lock-only
  frozen-lockfile no-package-lock save save-dev save-exact -DE
profile get|cache verify|pkg get|access list|team ls|owner ls|dist-tag ls|org ls:
version.:
!add|!uninstall|!remove|!rm|!update|!up: save save-dev save-exact no-save ignore-scripts legacy-peer-deps -DE
!audit fix|!dedupe|!prune|!rebuild|!link|!unlink: ignore-scripts
!pack:
!init: yes -y

[pnpm]
: silent recursive version help filter no-color -rsv
*: silent recursive filter if-present json long depth prod dev no-color parallel stream reporter aggregate-output
  workspace-root bail no-bail -rwF:
test|t|tst|build|lint|start|dev|format|check|typecheck|type-check|watch|clean|coverage|docs|e2e|unit|serve|preview|ci:test|
  test:unit|test:watch|test:ci|test:e2e|build:prod|lint:fix|run: watch watchAll coverage verbose silent quiet ci bail
  runInBand testNamePattern testPathPattern grep reporter= color no-color colors fix debug help version updateSnapshot
  passWithNoTests maxWorkers run production mode port prod strict check noEmit project-name only-changed onlyChanged
  no-cache headless workers forbid-only recursive timeout -t:
ls|list|ll|la|outdated|why|root|bin|licenses|audit.|store path|store status|config get|config list|help|doctor:
install.|i.: frozen-lockfile no-frozen-lockfile offline prefer-offline ignore-scripts lockfile-only save-dev save-exact -DE
!add|!remove|!rm|!update|!up: save-dev save-exact ignore-scripts latest -DE
!prune|!rebuild|!link|!unlink|!fetch|!dedupe: ignore-scripts

[yarn]
: silent version help -sv
*: silent json no-color production frozen-lockfile immutable offline check-files verbose all recursive parallel
test|t|tst|build|lint|start|dev|format|check|typecheck|type-check|watch|clean|coverage|docs|e2e|unit|serve|preview|ci:test|
  test:unit|test:watch|test:ci|test:e2e|build:prod|lint:fix|run: watch watchAll coverage verbose silent quiet ci bail
  runInBand testNamePattern testPathPattern grep reporter= color no-color colors fix debug help version updateSnapshot
  passWithNoTests maxWorkers run production mode port prod strict check noEmit project-name only-changed onlyChanged
  no-cache headless workers forbid-only recursive timeout -t:
list|info|why|outdated|audit.|licenses list|config get|config list|versions|bin|help|workspaces info|workspaces list|cache
  dir: depth pattern level groups
install.: inline-builds mode ignore-scripts non-interactive
!add|!remove|!upgrade|!up: dev exact tilde -DET
!dedupe|!cache clean|!link|!unlink|!rebuild: check

[bun]
: version revision help -v
test: watch timeout bail coverage only todo rerun-each test-name-pattern update-snapshots concurrent -t:u
build|lint|start|dev|format|check|typecheck|type-check|watch|clean|coverage|docs|e2e|unit|serve|preview|ci:test|test:unit|
  test:watch|test:ci|test:e2e|build:prod|lint:fix|run: watch watchAll coverage verbose silent quiet ci bail runInBand
  testNamePattern testPathPattern grep reporter= color no-color colors fix debug help version updateSnapshot passWithNoTests
  maxWorkers run production mode port prod strict check noEmit project-name only-changed onlyChanged no-cache headless
  workers forbid-only recursive timeout -t: silent bun
pm ls|pm bin|pm hash|outdated|why|pm cache: all
install.|i.: frozen-lockfile production dry-run no-save ignore-scripts silent
!add|!remove|!update: dev exact ignore-scripts -dDE
@refuse ::|//

[deno]
: version help quiet -Vhq
test|bench: watch filter fail-fast parallel quiet no-check check coverage doc shuffle trace-leaks permit-no-files no-run
  ignore -q
check|lint|fmt|info|doc|types|task|compile.|outdated|coverage: watch check json quiet ignore rules all html detailed
  filter-out fix line-width indent-width single-quote no-semicolons recursive -q
run: watch check no-check quiet no-prompt cached-only no-remote no-npm frozen allow-none -q
cache.|install.|add.: frozen quiet
@refuse :

[jest]
$jest: watch watchAll coverage verbose ci runInBand testNamePattern testPathPattern testPathPatterns bail silent onlyChanged
  updateSnapshot maxWorkers passWithNoTests no-cache detectOpenHandles forceExit listTests colors color no-color noColor
  changedSince findRelatedTests runTestsByPath selectProjects shard testTimeout expand errorOnDeprecated logHeapUsage
  showSeed seed randomize noStackTrace lastCommit onlyFailures no-coverage json help version -ibt:w:uofvh
: $jest

[vitest]
: help version watch run coverage reporter= silent bail retry testNamePattern no-color color changed passWithNoTests
  allowOnly update hideSkippedTests isolate no-isolate maxWorkers minWorkers logHeapUsage related typecheck project shard
  mode testTimeout no-file-parallelism fileParallelism -t:uwh

[mocha]
: grep fgrep invert bail recursive timeout -t: slow reporter= watch parallel jobs retries forbid-only forbid-pending full-trace
  inline-diffs check-leaks async-only color no-color colors no-colors dry-run exit ignore exclude sort delay diff no-diff
  list-reporters help version -g:f:ibt:s:R=wpj:cV

[ava]
: watch match serial verbose timeout fail-fast update-snapshots concurrency no-color color tap help version -wm:svuT:c:t

[cypress]
:
run: headless headed spec quiet tag -s:q
verify|info|version:

[playwright]
:
test: grep grep-invert headed list reporter= retries workers project repeat-each timeout max-failures forbid-only quiet shard
  update-snapshots last-failed only-changed fully-parallel pass-with-no-tests trace debug -g:j:ux
!install: with-deps dry-run

[eslint]
: ext fix-dry-run quiet max-warnings format= color no-color cache no-inline-config report-unused-disable-directives
  ignore-pattern debug stats exit-on-fatal-error no-error-on-unmatched-pattern pass-on-no-patterns fix fix-type
  no-warn-ignored env-info help version -f=hv

[prettier]
: check list-different write ignore-unknown log-level no-color color tab-width use-tabs no-semi single-quote print-width
  trailing-comma prose-wrap end-of-line no-error-on-unmatched-pattern cache file-info support-info help version -clwu

[stylelint]
: fix quiet max-warnings formatter= color no-color cache allow-empty-input ignore-pattern help version -f=qi:

[biome]
:
check|lint|format|ci|version|explain|rage: write fix apply changed staged no-errors-on-unmatched verbose colors
  max-diagnostics diagnostic-level reporter error-on-warnings since

[standard]
: fix verbose env-info help version -v

[xo]
: fix quiet help version

[tsc]
: noEmit watch build pretty incremental strict noUnusedLocals noUnusedParameters skipLibCheck listFiles listFilesOnly
  showConfig diagnostics extendedDiagnostics explainFiles traceResolution all target module moduleResolution jsx lib allowJs
  checkJs esModuleInterop verbose dry force clean preserveWatchOutput help version -wbhv

[tslint]
: fix format quiet exclude type-check help version -t:e:qhv

[webpack]
: mode watch progress color no-color stats profile fail-on-warnings devtool version help -wd:hv
@refuse ^(serve|server|s|init|create|new|loader|plugin|configtest|generate-loader|generate-plugin|migrate)$

[vite]
$vite: mode port strictPort logLevel clearScreen debug watch emptyOutDir sourcemap minify force help version
  -m:lwdhv
: $vite
build|dev|serve|preview|optimize: $vite

[rollup]
: watch silent sourcemap format name minifyInternalExports treeshake no-treeshake version help -wf:n:mhv

[esbuild]
: bundle minify sourcemap target format platform tree-shaking log-level color charset jsx keep-names splitting packages
  version help

[babel]
: watch extensions source-maps verbose quiet no-comments minified compact version help -wV

[parcel]
:
build|serve|watch: no-cache no-source-maps no-optimize log-level port detailed-report hot hmr-port no-hmr -p:

[next]
:
build|dev|start|lint|info|telemetry status: debug profile port turbo turbopack no-lint fix quiet max-warnings
  strict experimental-debug-memory-usage -dp:

[nuxt]
:
build|dev|generate|preview|typecheck|info|analyze: port log-level-only prerender

[turbo]
: version help
run|build|test|lint|dev|ls|query: filter force only dry dry-run continue parallel concurrency no-cache output-logs log-order
  affected -F:

[nx]
: version help
run|run-many|affected|test|build|lint|show|report|list|format:check|serve|e2e: target targets projects all base head
  parallel verbose skip-nx-cache configuration watch uncommitted affected exclude files -t:p:c:

[lerna]
: version help
run|list|ls|changed|diff|la|ll: scope since stream parallel json all long graph toposort concurrency no-bail ignore
  include-dependencies

[ng]
: version help
build|test|lint|serve|e2e|version: configuration watch no-watch code-coverage prod source-map port
  verbose progress include -cv

[vue-cli-service]
:
build|serve|lint|inspect: mode port modern no-fix

[svelte-check]
: watch threshold output fail-on-warnings ignore preserveWatchOutput

[tsup]
: watch minify sourcemap format target dts clean silent help version

[size-limit]
: json silent help version

[depcheck]
: json ignores skip-missing ignore-bin-package help version

[knip]
: production strict include exclude reporter= no-progress no-exit-code help version

[madge]
: circular json extensions warning summary orphans leaves no-color help version -c

[storybook]
:
dev|build: port ci quiet smoke-test docs -p:
"""
