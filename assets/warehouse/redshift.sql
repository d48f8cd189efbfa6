-- tables
SELECT NULL::varchar, table_schema::varchar, table_name::varchar,
  CASE WHEN table_type = 'VIEW' THEN 'view' ELSE 'table' END, remarks::varchar, NULL::bigint
FROM svv_tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema', 'pg_internal') ORDER BY 2, 3
-- columns
SELECT NULL::varchar, table_schema::varchar, table_name::varchar, column_name::varchar, data_type::varchar,
  is_nullable = 'YES', remarks::varchar
FROM svv_columns WHERE table_schema NOT IN ('pg_catalog', 'information_schema', 'pg_internal') AND {only:table_schema,table_name}
ORDER BY 2, 3, ordinal_position
-- server
SELECT version(), current_user::varchar
-- rights
SELECT 'create tables in ' || nspname FROM pg_catalog.pg_namespace
WHERE nspname NOT LIKE 'pg_%' AND nspname <> 'information_schema' AND has_schema_privilege(nspname, 'CREATE')
