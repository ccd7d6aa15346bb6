"""Version control: git, its relatives, and the clients of its hosts."""

TEXT = r"""
[git]
$diff: stat shortstat numstat dirstat summary name-only name-status patch no-patch raw unified word-diff word-diff-regex
  color-words color no-color color-moved diff-filter find-renames find-copies no-renames minimal patience histogram
  diff-algorithm ignore-space-change ignore-all-space ignore-blank-lines ignore-space-at-eol function-context
  inter-hunk-context relative no-relative exit-code quiet check full-index binary abbrev no-abbrev text cached staged
  merge-base submodule ignore-submodules no-ext-diff no-textconv pickaxe-all pickaxe-regex src-prefix dst-prefix no-prefix
  patch-with-stat compact-summary cc -puU:M:C:S:G:bwRazqsBDW
$log: oneline graph decorate no-decorate all branches tags remotes max-count skip since after until before author committer
  grep invert-grep all-match regexp-ignore-case extended-regexp fixed-strings perl-regexp merges no-merges first-parent
  reverse date date-order topo-order author-date-order pretty format abbrev-commit no-abbrev-commit follow full-history
  ancestry-path simplify-by-decoration left-right cherry-pick cherry-mark left-only right-only boundary walk-reflogs no-walk
  show-pulls notes no-notes parents children use-mailmap log-size source relative-date exclude -n:iEFPgcmtL:
$list: format sort count contains no-contains merged no-merged points-at ignore-case
: no-pager no-optional-locks literal-pathspecs glob-pathspecs noglob-pathspecs icase-pathspecs version -Pv
@refuse ::
status: short branch porcelain long verbose show-stash ahead-behind no-ahead-behind untracked-files ignored
  ignore-submodules column no-column renames no-renames find-renames null -sbvzu:
diff|diff-tree|diff-index|diff-files: $diff root no-commit-id pretty format -rtmc
log|whatchanged: $diff $log
show: $diff $log
blame|annotate: porcelain line-porcelain incremental show-name show-number show-email root show-stats date since color-lines
  color-by-age abbrev minimal progress no-progress -L:M:C:bltsefwpcn
ls-files: cached deleted modified others ignored stage unmerged killed exclude exclude-standard directory full-name
  error-unmatch eol abbrev deduplicate format recurse-submodules no-empty-directory -cdmoisutvzkx:
ls-tree: name-only name-status long full-name full-tree abbrev format object-only -drtlz
rev-parse: abbrev-ref short verify quiet show-toplevel show-prefix show-cdup git-dir absolute-git-dir is-inside-work-tree
  is-inside-git-dir is-bare-repository symbolic symbolic-full-name all branches tags remotes show-object-format
  git-common-dir show-superproject-working-tree since until -q
rev-list: $log count objects max-age min-age abbrev quiet timestamp
describe: tags all long always abbrev match exclude contains candidates dirty broken first-parent exact-match debug
shortlog: $log numbered summary email group -nsecw:
cat-file: -tspe
name-rev: tags refs name-only always all
merge-base: all octopus independent is-ancestor fork-point -a
for-each-ref: $list omit-empty
show-ref: head heads tags branches dereference hash verify abbrev quiet exclude-existing exists -dsq
count-objects: verbose human-readable -vH
check-ignore: quiet verbose non-matching no-index -qvn
version: build-options
help: all guides -ag
grep: line-number count files-with-matches files-without-match name-only ignore-case word-regexp extended-regexp
  basic-regexp fixed-strings perl-regexp invert-match only-matching max-count max-depth heading break color no-color
  show-function function-context context before-context after-context full-name text cached untracked no-index
  exclude-standard and or not all-match quiet column recursive no-recursive threads null recurse-submodules
  -nclLiwEGFPvohHqA:B:C:pWae:zIrm:
var: -l
!add: all update verbose dry-run force intent-to-add ignore-errors renormalize no-all refresh ignore-removal -Auvnf
!commit: message all amend no-edit signoff no-signoff verbose quiet dry-run allow-empty allow-empty-message author date
  short branch porcelain long reset-author only include status no-status trailer fixup squash -m:aqvsio
!push: set-upstream tags follow-tags verbose quiet dry-run porcelain progress all branches atomic -uvqn
!pull: rebase no-rebase ff ff-only no-ff verbose quiet prune tags no-tags all autostash progress depth squash no-commit
  -rvqp
!fetch: all prune tags no-tags verbose quiet dry-run depth deepen unshallow progress force prune-tags jobs -pvqtnj:
!clone: depth branch single-branch no-tags quiet verbose progress bare mirror -b:qv
!ls-remote: heads tags refs branches quiet sort symref exit-code -htq
!branch: list all remotes verbose show-current $list delete move copy track no-track set-upstream-to unset-upstream quiet
  color no-color abbrev column -larvdmcqt:u:
!checkout|!switch: quiet progress create track no-track detach orphan guess no-guess merge conflict -b:c:qtm
!merge: no-ff ff ff-only squash no-commit commit message no-edit abort quit continue verbose quiet stat no-stat signoff
  -m:vqn
!rebase: continue abort skip quit onto autostash no-autostash verbose quiet keep-base root update-refs autosquash
  no-autosquash stat no-stat -vq
!cherry-pick|!revert: continue abort skip quit no-commit no-edit signoff mainline -nxsm:
!reset: soft mixed quiet -qN
!stash list: $log $diff
!stash show: $diff include-untracked only-untracked
!stash push: message include-untracked keep-index no-keep-index quiet staged all -m:ukqSa
!stash pop|!stash apply: index quiet -q
!stash: message include-untracked keep-index quiet -ukq
!tag: list message annotate delete $list color -lam:dn
!remote show|!remote get-url: all push
!remote: verbose -v
!worktree list: porcelain verbose -vz
!mv: verbose dry-run force -vnfk
!rm: cached dry-run quiet ignore-unmatch -nq
!init: quiet initial-branch -qb:
!submodule status: recursive cached quiet
!reflog show: $log
!reflog: $log
!config get|!config list: all show-origin show-scope name-only
!cherry: verbose -v
!range-diff: $diff creation-factor no-dual-color
!verify-commit|!verify-tag: verbose raw -v

[hg]
: quiet verbose version help -qv
status|st: all modified added removed clean unknown ignored no-status rev change -mardcuin
log|history: rev limit graph patch user keyword branch follow stat date template -r:l:Gpu:k:b:fd:
diff: rev change stat unified git text show-function ignore-all-space -r:c:U:gapwbB
summary|branch|branches|tags|heads|parents|identify|id|annotate|blame|files|root|paths: rev verbose number user -r:vnu
cat: rev -r:

[svn]
: version help quiet -q
status|stat|st|info|log|list|ls|blame|annotate|propget|proplist: revision limit verbose quiet show-updates stop-on-copy
  depth recursive xml summarize change -r:l:vquRc:
diff|di: revision change summarize git depth ignore-properties -r:c:

[gh]
: help version
*: repo limit state author assignee label json jq template comments search head base milestone mention app help draft
  -L:s:A:a:l:q:t:cR:S:H:B:d
pr list|pr view|pr status|pr diff|pr checks: name-only patch color watch required fail-fast interval
issue list|issue view|issue status: sort
run list|run view|run watch: log log-failed job verbose exit-status attempt workflow branch status event user commit
  interval
workflow list|workflow view|release list|release view|repo view|repo list|label list|gist list|search code|search issues|
  search prs|search repos|search commits: all yaml ref exclude-drafts exclude-pre-releases order
auth status: hostname active
status: exclude org
browse.: no-browser commit branch
!api: method paginate header include silent slurp cache -X:iH:
!pr create|!pr edit|!pr comment|!pr close|!pr reopen|!pr ready|!pr review|!pr checkout: title body fill fill-first reviewer
  project add-label remove-label approve comment request-changes branch detach -b:r:f
!issue create|!issue edit|!issue comment|!issue close|!issue reopen: title body project reason add-label remove-label -b:p:
!run rerun|!run cancel|!workflow run: failed job ref

[glab]
: help version
*: repo per-page page output state author assignee label all help -R:P:p:F:A
mr list|mr view|mr diff|mr issues|issue list|issue view|ci list|ci status|ci view|repo view|pipeline list|release list:
  comments branch
"""
