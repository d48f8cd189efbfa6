-- tables
SELECT table_catalog, table_schema, table_name,
  CASE WHEN table_type LIKE '%VIEW%' THEN 'view' WHEN table_type = 'EXTERNAL' THEN 'external' ELSE 'table' END,
  CAST(NULL AS STRING), CAST(NULL AS INT64)
FROM {scope}INFORMATION_SCHEMA.TABLES ORDER BY 2, 3
-- columns
SELECT table_catalog, table_schema, table_name, column_name, data_type, is_nullable = 'YES', CAST(NULL AS STRING)
FROM {scope}INFORMATION_SCHEMA.COLUMNS WHERE {only:table_schema,table_name} ORDER BY 2, 3, ordinal_position
-- server
SELECT 'BigQuery', SESSION_USER()
