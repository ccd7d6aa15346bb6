"""The network: transfers, containers and clouds."""

TEXT = r"""
[curl]
: silent show-error location fail fail-with-body fail-early head include verbose max-time connect-timeout compressed retry
  retry-delay retry-max-time retry-connrefused http1.0 http1.1 http2 http3 ipv4 ipv6 no-progress-meter progress-bar globoff
  range speed-limit speed-time limit-rate max-redirs max-filesize no-buffer tlsv1.2 tlsv1.3 path-as-is no-location version
  help -sSLfIivm:46#gr:NV
@operand (?i:(https?://)?(?!.*[\s{}@])[^:]*(:\d+)?([/?].*)?)

[wget wget2]
: quiet no-verbose verbose timestamping continue spider server-response tries timeout wait no-parent level max-redirect
  inet4-only inet6-only show-progress progress version help -qvcNSn:t:T:w:46
@operand (?i:(https?://)?(?!.*[\s{}@])[^:]*(:\d+)?([/?].*)?)

[rsync]
: archive verbose recursive dry-run progress stats human-readable exclude include update checksum compress links perms times
  group owner itemize-changes partial size-only ignore-existing existing quiet whole-file hard-links one-file-system
  relative no-relative delay-updates list-only modify-window prune-empty-dirs version help -avrlptgoDznhuqxSHAXciPWRm
@refuse :

[nc ncat netcat]
: version help zero wait -zvnw:u46h

[ping]
: -c:i:w:W:q46nDs:

[traceroute]
: -n46m:w:q:

[dig]
: -x:t:46
@refuse ^@

[host]
: -t:av46

[nslookup]
@dash
: type query timeout debug

[whois]
: -H

[ss]
: all listening numeric processes tcp udp summary extended -atulnpsemr46o

[netstat]
: all listening numeric programs tcp udp route statistics -*

[ip]
: brief color json details -br46jdso
addr|a|address|link|route|r|neigh|rule.: brief
addr show|address show|a show|link show|route show|route get|neigh show|rule show: brief

[ifconfig]
: -a
@operand [\w.:]+
@single

[openssl]
@dash
: help
version: a v b d f m
x509: in text noout subject issuer dates enddate startdate fingerprint serial sha256 sha1 inform checkend ext pubkey
rand: hex base64
dgst: sha256 sha1 sha512 md5 r
ciphers: v V s
list: commands digest-algorithms cipher-algorithms
verify:

[docker podman]
$container: all no-trunc quiet filter format last latest size digests tail follow since until timestamps details no-stream
  type human verbose help -aqf:n:lstH
: version help debug -vD
ps|images|logs|top|stats|port|diff|history|version|info|inspect|search|events|container ls|container list|container logs|
  container top|container stats|container inspect|image ls|image list|image inspect|image history|volume ls|volume inspect|
  network ls|network inspect|context ls|context show|system df|system info|buildx ls|buildx version|node ls|service ls|stack
  ls: $container
compose ps|compose logs|compose config|compose images|compose top|compose ls|compose version|compose port|compose events:
  $container services volumes profiles hash no-color no-log-prefix index
build: tag no-cache pull progress target platform quiet build-arg label compress rm force-rm network-none -t:q
!pull|!compose pull: quiet platform all-tags ignore-pull-failures -aq
!start|!stop|!restart|!wait|!pause|!unpause|!rename|!tag|!container start|!container stop|!container restart: time timeout
  -t:
!compose up: detach build no-build force-recreate no-recreate no-deps wait remove-orphans quiet-pull abort-on-container-exit
  -dV
!compose build|!compose start|!compose stop|!compose restart|!compose down|!compose create: no-cache pull quiet timeout
  remove-orphans progress -qt:
!rm|!rmi|!container rm|!image rm|!network rm|!network create|!volume create: no-prune
!buildx build|!image build: tag no-cache pull progress target platform quiet build-arg label -t:q
@refuse ://|^git@

[kubectl oc]
: version help
*: namespace all-namespaces output selector field-selector label-columns show-labels watch container follow tail since
  previous timestamps all-containers sort-by no-headers ignore-not-found max-log-requests prefix limit-bytes containers
  recursive api-group namespaced verbs client short timeout for show-managed-fields chunk-size minify help -n:Ao:l:L:wc:fp
config get-contexts|config current-context|config view|config get-clusters|cluster-info|version|explain|api-resources|
  api-versions|get|describe|logs|top pod|top node|top pods|top nodes|events|auth can-i|auth whoami|rollout status|rollout
  history|diff.|options|wait:
!apply|!create|!delete|!scale|!rollout restart|!label|!annotate|!patch|!set image|!expose: dry-run replicas

[aws]
: version help
*: output query region no-paginate max-items page-size human-readable summarize recursive help no-cli-pager color
sts get-caller-identity|s3 ls|s3api list-buckets|s3api list-objects-v2|ec2 describe-instances|ec2 describe-regions|lambda
  list-functions|iam list-users|iam get-user|logs describe-log-groups|logs tail|cloudformation list-stacks|cloudformation
  describe-stacks|ecs list-clusters|ecs describe-services|configure list|rds describe-db-instances: since follow format
  stack-name cluster services prefix bucket
!s3 cp|!s3 sync: dryrun

[gcloud]
: version help
*: format project region zone filter limit sort-by quiet verbosity help
config list|config get-value|config get|config configurations list|projects list|projects describe|compute instances list|
  compute instances describe|container clusters list|auth list|info|version|run services list|run services describe|
  functions list|logging read: freshness

[az]
: version help
*: output query resource-group name subscription only-show-errors verbose debug help -o:g:n:
account show|account list|group list|group show|vm list|vm show|webapp list|webapp show|aks list|aks show|version|resource
  list|storage account list: detail

[gsutil]
: version
ls|du|stat|version: -lhrsp:

[heroku]
: version help
apps|apps:info|ps|releases|config.|logs|addons|domains|status: app num tail source json -a:n:t

[fly]
:
status|logs|apps list|releases|version|regions list: app json -a:j

[vercel]
: version help
ls|list|inspect|whoami|logs|project ls|domains ls|env ls: scope json follow -f

[netlify]
: version help
status|sites:list|env:list: json

[firebase]
: version help
projects:list|apps:list|use.|target: json project

[wrangler]
: version help
whoami|deployments list|kv:namespace list|d1 list: json

[stripe]
: version help
status|version|config --list:

[pulumi]
:
stack ls|config.|preview|version|whoami|about|stack output|stack.: json diff stack non-interactive -s:j

[podman-compose]
: version
ps|logs|config|images: follow tail quiet -fq

[docker-compose]
: version help
ps|logs|config|images|top|port|version: follow tail quiet services all timestamps no-color -fqat
!up|!build|!start|!stop|!restart|!down|!pull: detach build no-build force-recreate no-cache pull quiet remove-orphans
  timeout -dqt:

[minikube]
:
status|version|ip|profile list|addons list|logs: output profile -o:p:

[kind]
:
version|get clusters|get nodes: name quiet -q

[systemd-analyze]
: no-pager
blame|time|critical-chain: no-pager

[journalctl]
: no-pager unit lines since until follow boot priority grep output reverse list-boots disk-usage utc user system identifier
  dmesg catalog -u:n:fb:p:g:o:rS:U:xekt:

[systemctl]
: no-pager
"""
