"""Files and text: the programs of a Unix base system, archives, and the usual searchers."""

TEXT = r"""
[ls]
: all almost-all author escape block-size color directory dired classify file-type format full-time group-directories-first
  no-group human-readable si hide indicator-style inode ignore kibibytes dereference-command-line numeric-uid-gid literal
  hide-control-chars show-control-chars quote-name quoting-style reverse recursive size sort time time-style tabsize width
  context zero hyperlink help version -*

[cat]
: show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting help version -*

[head]
: bytes lines quiet silent verbose zero-terminated help version -n:c:qvz

[tail]
: bytes lines follow retry quiet silent verbose sleep-interval pid zero-terminated help version -n:c:fFqvs:z

[wc]
: bytes chars lines words max-line-length total help version -*

[stat]
: dereference file-system format printf terse cached help version -Lfc:tx

[file]
: brief mime mime-type mime-encoding dereference keep-going no-pad raw help version -biIhLkNprvz0

[du]
: all apparent-size bytes total human-readable si max-depth summarize one-file-system separate-dirs threshold time exclude
  block-size count-links help version -abcd:hHklmsSxt:B:

[df]
: all human-readable si inodes local print-type type total block-size portability exclude-type help version -ahHiklPTt:x:B:

[nl]
: body-numbering number-format number-separator number-width starting-line-number help version -b:n:s:w:v:

[tac]
: before regex separator help version -brs:

[cmp]
: print-bytes ignore-initial verbose bytes quiet silent help version -bi:ln:s

[diff]
: brief report-identical-files context unified ed normal side-by-side width left-column suppress-common-lines
  show-c-function show-function-line initial-tab expand-tabs recursive new-file unidirectional-new-file ignore-case
  ignore-tab-expansion ignore-trailing-space ignore-space-change ignore-all-space ignore-blank-lines text strip-trailing-cr
  minimal color exclude starting-file no-dereference help version -qsC:cu:U:eynW:pF:tTrNiEbwBaX:dx:

[md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum]
$sums: binary check tag text zero ignore-missing quiet status strict warn help version -bctwz
: $sums

[basename]
: multiple suffix zero -as:z

[dirname]
: zero -z

[realpath]
: canonicalize-existing canonicalize-missing logical physical quiet relative-to relative-base strip no-symlinks zero
  -emLPqsz

[readlink]
: canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero -femnqsvz

[grep egrep fgrep]
: extended-regexp fixed-strings basic-regexp perl-regexp regexp ignore-case no-ignore-case word-regexp line-regexp count
  color colour files-without-match files-with-matches max-count only-matching quiet silent no-messages byte-offset
  with-filename no-filename label line-number initial-tab null null-data after-context before-context context text
  binary-files exclude exclude-dir include recursive line-buffered invert-match help version
  -EFGPe:iywxcLlm:oqsbHhnTZzA:B:C:aIrvV

[rg]
: regexp ignore-case smart-case case-sensitive fixed-strings word-regexp line-regexp count count-matches files
  files-with-matches files-without-match max-count only-matching quiet line-number no-line-number column heading no-heading
  after-context before-context context glob iglob glob-case-insensitive type type-not type-list hidden no-ignore
  no-ignore-vcs no-ignore-parent max-depth max-filesize max-columns multiline multiline-dotall invert-match vimgrep json
  stats sort sortr color colors no-messages null text unrestricted pcre2 passthru trim threads replace with-filename
  no-filename one-file-system debug trace crlf engine help version -e:iSsFwxclom:qnNA:B:C:g:t:T:.uvUaj:r:HIP0p

[ag]
: ignore-case smart-case case-sensitive literal word-regexp count files-with-matches files-without-matches max-count
  only-matching numbers column after before context file-search-regex ignore hidden depth invert-match nocolor color nogroup
  group stats unrestricted help version -iSsQwclLm:oA:B:C:G:vtaun

[ack]
: ignore-case smart-case literal word-regexp count files-with-matches max-count type nocolor color group nogroup
  after-context before-context context help version -iSQwclm:t:A:B:C:vhHon

[cut]
: bytes characters fields delimiter complement only-delimited output-delimiter zero-terminated -b:c:f:d:snz

[tr]
: complement delete squeeze-repeats truncate-set1 -cCdst

[rev sleep expr]
:

[fold]
: bytes spaces width -bsw:

[column]
: table separator output-separator json table-columns -tc:s:o:xnJN:

[comm]
: check-order nocheck-order output-delimiter total zero-terminated -123z

[paste]
: delimiters serial zero-terminated -d:sz

[join]
: ignore-case header check-order nocheck-order zero-terminated -a:e:i1:2:j:o:t:v:z

[uniq]
: count repeated all-repeated skip-fields group ignore-case skip-chars unique zero-terminated check-chars -cdDf:is:uzw:
@single

[sort]
: ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting month-sort human-numeric-sort
  numeric-sort random-sort reverse sort version-sort check key merge stable unique field-separator zero-terminated parallel
  help version -bdfgiMhnRrVck:msut:zC

[od]
: address-radix format read-bytes skip-bytes strings width output-duplicates -A:t:N:j:S:w:vabcdfhilosx

[hexdump]
: canonical length skip no-squeezing -bcCdovxn:s:

[xxd]
: bits cols decimal groupsize include len plain postscript seek upper -bc:dg:il:ps:u
@single

[strings]
: all bytes print-file-name radix encoding data -ad:n:t:fe:o

[tree]
: all dirsfirst noreport charset filelimit gitignore prune du si sort timefmt matchdirs ignore-case metafirst
  -adfiqNQpugshDFL:P:I:vtcUrCnJX

[id whoami uname which nproc uptime free tty arch groups users who w lscpu lsblk locale getconf tput]
: all human help version -*

[date]
: date utc universal iso-8601 rfc-3339 rfc-email reference help version -d:uI:Rr:
@refuse ^[0-9]{4,12}([.][0-9]+)?$

[ps]
: forest no-headers sort pid ppid user format width -*

[pgrep]
: full list-name list-full count newest oldest parent user exact help -flacnoP:u:x

[lsof]
: -aciInPpstTuU

[seq]
: equal-width format separator -wf:s:

[mkdir]
: parents verbose -pv

[rmdir]
: parents verbose ignore-fail-on-non-empty -pv

[touch]
: no-create time date reference -acmd:r:t:h

[rm]
: verbose interactive -vi

[cp]
: archive recursive verbose no-clobber update preserve no-target-directory target-directory interactive no-dereference
  one-file-system parents sparse reflink force -rRapvnuit:TdPxf

[mv]
: verbose no-clobber update target-directory no-target-directory interactive force -vnut:Tif

[ln]
: symbolic verbose relative no-dereference no-target-directory -svrnT

[tee]
: append ignore-interrupts -aip

[find]
@dash
: name iname path ipath wholename iwholename regex iregex regextype type xtype maxdepth mindepth mtime mmin ctime cmin atime
  amin newer newermt anewer cnewer size empty perm user group uid gid nouser nogroup links inum samefile print print0 printf
  ls prune quit not a and o or true false depth d mount xdev daystart readable writable executable noleaf warn nowarn P
  version help

[fd fdfind]
: hidden no-ignore case-sensitive ignore-case glob regex fixed-strings absolute-path list-details full-path print0 max-depth
  min-depth exact-depth type extension exclude size changed-within changed-before owner color threads max-results quiet
  show-errors strip-cwd-prefix max-one-result help version -HIsigFalp0d:t:e:E:S:o:c:j:1qu

[tar bsdtar gtar]
: list extract get create gzip gunzip bzip2 xz zstd lzma lzip verbose file exclude exclude-vcs strip-components wildcards
  no-wildcards anchored keep-old-files keep-newer-files skip-old-files totals full-time show-transformed-names no-same-owner
  no-same-permissions sort mtime numeric-owner auto-compress utc test-label help version -txczjJvf:kaOmopw
@refuse :
@bundle

[zip]
: recurse-paths quiet verbose test exclude include update freshen junk-paths symlinks no-dir-entries -rqvx:i:ufjyD0123456789

[unzip]
: -lvtZqpnjax:C

[gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd unzstd zstdcat]
$gzip: stdout to-stdout decompress uncompress keep list test verbose quiet best fast force recursive help version
  -cdkltvqfrn
: $gzip

[7z]
:
l|t: -r

[awk gawk mawk nawk]
: field-separator assign posix traditional re-interval version -F:v:

[jq]
: compact-output raw-output raw-input null-input slurp sort-keys color-output monochrome-output tab indent arg argjson args
  jsonargs exit-status join-output ascii-output stream seq unbuffered help version -crnsSCMejaRh

[yq]
: output-format input-format prettyPrint unwrapScalar colors no-colors null-input exit-status indent no-doc raw-output
  tojson help version -PrCMnejI:p:N
@refuse load|system|env

[xmllint]
@dash
: noout format valid xpath nonet recover debug html pretty version

[bc]
: mathlib quiet -lq

[base64]
: decode wrap ignore-garbage -dw:i

[envsubst]
: variables -v

[iconv]
: from-code to-code list -f:t:lcs

[tokei]
: files sort types exclude hidden languages compact help version -fs:t:e:l

[cloc]
: by-file quiet sum-one exclude-dir include-lang exclude-lang json csv md vcs help version

[shellcheck]
: format severity shell exclude include color enable external-sources check-sourced norc help version -f:S:s:e:i:C:o:axV

[shfmt]
: list diff simplify indent -ldsi:

[ffprobe]
@dash
: v loglevel show_format show_streams show_entries of print_format select_streams hide_banner i pretty count_frames version

[ffmpeg]
@dash
: i version hide_banner formats codecs encoders decoders filters pix_fmts loglevel v
@refuse :

[convert magick identify]
@dash
: version list
@refuse :|^@

[pandoc]
: from to standalone toc number-sections wrap columns list-input-formats list-output-formats help version -f:t:r:w:sNv
"""
