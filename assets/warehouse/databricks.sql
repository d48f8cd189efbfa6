-- tables
SELECT table_catalog, table_schema, table_name,
  CASE WHEN table_type LIKE '%VIEW%' THEN 'view' WHEN table_type = 'EXTERNAL' THEN 'external' ELSE 'table' END,
  comment, CAST(NULL AS BIGINT)
FROM information_schema.tables WHERE table_schema <> 'information_schema' ORDER BY 2, 3
-- columns
SELECT table_catalog, table_schema, table_name, column_name, full_data_type, is_nullable = 'YES', comment
FROM information_schema.columns WHERE table_schema <> 'information_schema' AND {only:table_schema,table_name} ORDER BY 2, 3, ordinal_position
-- server
SELECT concat('Databricks ', current_version().dbsql_version), current_user()
