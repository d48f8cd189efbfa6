-- tables
SELECT table_catalog, table_schema, table_name,
  CASE WHEN table_type LIKE '%VIEW%' THEN 'view' WHEN table_type LIKE '%EXTERNAL%' THEN 'external' ELSE 'table' END,
  comment, row_count
FROM information_schema.tables WHERE table_schema <> 'INFORMATION_SCHEMA' ORDER BY 2, 3
-- columns
SELECT table_catalog, table_schema, table_name, column_name, data_type, is_nullable = 'YES', comment
FROM information_schema.columns WHERE table_schema <> 'INFORMATION_SCHEMA' AND {only:table_schema,table_name} ORDER BY 2, 3, ordinal_position
-- server
SELECT 'Snowflake ' || current_version(), current_user()
-- rights
SELECT privilege_type || ' on ' || object_type || ' ' || object_name FROM information_schema.object_privileges
WHERE grantee = current_role() AND privilege_type IN ('OWNERSHIP', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'CREATE TABLE') LIMIT 5
