"""Databases and their clients."""

TEXT = r"""
[sqlite3]
@dash
: readonly header noheader csv json table column line list html markdown box bail batch version help safe nullvalue
  separator
@operand (?!\.\w)[\w./-]+
@operand (?i:\s*(select|explain)\b.*)
@refuse (?i:;\s*\S|\binto\b|readfile|writefile|load_extension|fts3_tokenizer|\bedit\s*\(|zipfile|fsdir|\\)

[psql]
: list no-align tuples-only expanded quiet html csv no-password no-psqlrc username port version help -lAtxqHwXU:p:V
@operand [\w-]+

[mysql mariadb]
: version help table batch raw silent vertical skip-column-names user port -tBrsENVu:P:
@operand [\w-]+

[pg_dump pg_dumpall]
: schema-only data-only no-owner no-acl clean create if-exists inserts column-inserts table exclude-table schema version
  help -sOxcCat:n:T:
@operand [\w-]+

[mysqldump]
: no-data no-create-info single-transaction skip-lock-tables databases all-databases tables version help -BAd
@operand [\w-]+

[pg_isready]
: quiet timeout -qt:

[redis-cli]
: version help raw no-raw csv json
ping|get|keys|scan|info|dbsize|ttl|type|exists|hget|hgetall|hkeys|llen|lrange|smembers|scard|zrange|zcard|strlen|time|
  lastsave|memory usage|object encoding: raw

[mongosh mongo]
: version help quiet norc
@operand [\w-]+

[duckdb]
@dash
: readonly header noheader csv json table column line list markdown box bail batch version help
@operand (?!\.\w)[\w./-]+
@operand (?i:\s*(select|explain)\b.*)
@refuse (?i:;\s*\S|\binto\b|readfile|writefile|load_extension|fts3_tokenizer|\bedit\s*\(|zipfile|fsdir|\\)
@refuse (?i:read_|copy|install|load|attach|glob\s*\(|from\s+[\'"])

[prisma]
: version help
validate|format|version|migrate status|generate.:
!migrate dev|!db push|!db pull|!migrate deploy:

[flyway]
:
info|validate|version:

[liquibase]
:
status|validate|history:

[etcdctl]
:
get|member list|endpoint status|endpoint health|version: prefix keys-only write-out limit -w:

[influx]
: version
ping|version|bucket list|org list: json

[cqlsh clickhouse-client]
: version help

[sqlcmd]
:

[bq]
:
ls|show|version: format max_results schema -n:a
"""
