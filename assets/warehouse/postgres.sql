-- tables
SELECT NULL::text, n.nspname::text, c.relname::text,
  CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' WHEN 'f' THEN 'external' ELSE 'table' END,
  obj_description(c.oid, 'pg_class'),
  CASE WHEN c.reltuples >= 0 AND c.relkind <> 'v' THEN c.reltuples::bigint END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
  AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
ORDER BY 2, 3
-- columns
SELECT NULL::text, n.nspname::text, c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod),
  NOT a.attnotnull, col_description(c.oid, a.attnum)
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
  AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT') AND {only:n.nspname,c.relname}
ORDER BY 2, 3, a.attnum
-- keys
SELECT NULL::text, n.nspname::text, c.relname::text, a.attname::text, CASE k.contype WHEN 'p' THEN 'PK' ELSE 'FK' END,
  NULL::text, fn.nspname::text, fc.relname::text, fa.attname::text
FROM pg_catalog.pg_constraint k
  CROSS JOIN LATERAL unnest(k.conkey, COALESCE(k.confkey, k.conkey)) WITH ORDINALITY AS u(own, other, place)
  JOIN pg_catalog.pg_class c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.own
  LEFT JOIN pg_catalog.pg_class fc ON fc.oid = k.confrelid LEFT JOIN pg_catalog.pg_namespace fn ON fn.oid = fc.relnamespace
  LEFT JOIN pg_catalog.pg_attribute fa ON fa.attrelid = fc.oid AND fa.attnum = u.other
WHERE k.contype IN ('p', 'f') AND k.conparentid = 0 AND has_schema_privilege(n.oid, 'USAGE')
  AND {only:n.nspname,c.relname}
ORDER BY 2, 3, k.contype DESC, k.oid, u.place
-- server
SELECT split_part(version(), ' on ', 1), current_user::text
-- rights
SELECT 'superuser' WHERE (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)
UNION ALL SELECT 'create schemas in ' || current_database() WHERE has_database_privilege(current_database(), 'CREATE')
UNION ALL SELECT 'create tables in ' || nspname FROM pg_catalog.pg_namespace
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' AND has_schema_privilege(oid, 'CREATE')
UNION ALL SELECT 'change ' || count(*) || ' tables' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') HAVING count(*) > 0
