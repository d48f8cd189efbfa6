-- tables
SELECT NULL, schema_name, table_name, 'table', comment, estimated_size::BIGINT
FROM duckdb_tables() WHERE NOT internal AND NOT temporary AND database_name = current_database()
UNION ALL
SELECT NULL, schema_name, view_name, 'view', comment, NULL
FROM duckdb_views() WHERE NOT internal AND NOT temporary AND database_name = current_database() ORDER BY 2, 3
-- columns
SELECT NULL, schema_name, table_name, column_name, data_type, is_nullable, comment
FROM duckdb_columns() WHERE NOT internal AND database_name = current_database() AND {only:schema_name,table_name}
ORDER BY 2, 3, column_index
-- keys
SELECT NULL, schema_name, table_name, unnest(constraint_column_names),
  CASE constraint_type WHEN 'PRIMARY KEY' THEN 'PK' ELSE 'FK' END,
  NULL, schema_name, referenced_table, unnest(referenced_column_names)
FROM duckdb_constraints()
WHERE constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY') AND database_name = current_database()
  AND {only:schema_name,table_name}
-- server
SELECT 'DuckDB ' || version(), ''
-- rights
SELECT '' WHERE false
