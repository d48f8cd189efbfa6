-- tables
SELECT CAST(NULL AS CHAR), table_schema, table_name, CASE table_type WHEN 'VIEW' THEN 'view' ELSE 'table' END,
  table_comment, table_rows
FROM information_schema.tables
WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') ORDER BY 2, 3
-- columns
SELECT CAST(NULL AS CHAR), table_schema, table_name, column_name, column_type, is_nullable = 'YES', column_comment
FROM information_schema.columns
WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') AND {only:table_schema,table_name} ORDER BY 2, 3, ordinal_position
-- keys
SELECT CAST(NULL AS CHAR), table_schema, table_name, column_name,
  CASE WHEN referenced_table_name IS NULL THEN 'PK' ELSE 'FK' END,
  CAST(NULL AS CHAR), referenced_table_schema, referenced_table_name, referenced_column_name
FROM information_schema.key_column_usage
WHERE (constraint_name = 'PRIMARY' OR referenced_table_name IS NOT NULL) AND {only:table_schema,table_name} ORDER BY 2, 3, ordinal_position
-- server
SELECT CONCAT('MySQL ', version()), current_user()
-- rights
SELECT DISTINCT privilege_type FROM information_schema.schema_privileges
WHERE privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'CREATE', 'DROP', 'ALTER')
