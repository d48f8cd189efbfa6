-- tables
SELECT DB_NAME(), s.name, o.name, CASE o.type WHEN 'V' THEN 'view' ELSE 'table' END,
  CAST(p.value AS nvarchar(4000)), (SELECT SUM(r.rows) FROM sys.partitions r WHERE r.object_id = o.object_id AND r.index_id IN (0, 1))
FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
  LEFT JOIN sys.extended_properties p ON p.major_id = o.object_id AND p.minor_id = 0 AND p.name = 'MS_Description'
WHERE o.type IN ('U', 'V') AND o.is_ms_shipped = 0 ORDER BY 2, 3
-- columns
SELECT DB_NAME(), table_schema, table_name, column_name, data_type,
  CAST(CASE is_nullable WHEN 'YES' THEN 1 ELSE 0 END AS bit), NULL
FROM information_schema.columns WHERE {only:table_schema,table_name} ORDER BY 2, 3, ordinal_position
-- keys
SELECT DB_NAME(), k.table_schema, k.table_name, k.column_name, 'PK', NULL, NULL, NULL, NULL
FROM information_schema.table_constraints t JOIN information_schema.key_column_usage k
  ON k.constraint_name = t.constraint_name AND k.table_schema = t.table_schema
WHERE t.constraint_type = 'PRIMARY KEY' AND {only:k.table_schema,k.table_name}
UNION ALL
SELECT DB_NAME(), OBJECT_SCHEMA_NAME(f.parent_object_id), OBJECT_NAME(f.parent_object_id),
  COL_NAME(f.parent_object_id, f.parent_column_id), 'FK', DB_NAME(), OBJECT_SCHEMA_NAME(f.referenced_object_id),
  OBJECT_NAME(f.referenced_object_id), COL_NAME(f.referenced_object_id, f.referenced_column_id)
FROM sys.foreign_key_columns f
WHERE {only:OBJECT_SCHEMA_NAME(f.parent_object_id),OBJECT_NAME(f.parent_object_id)}
-- server
SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), SUSER_SNAME()
-- rights
SELECT permission_name FROM fn_my_permissions(NULL, 'DATABASE')
WHERE permission_name IN ('INSERT', 'UPDATE', 'DELETE', 'CREATE TABLE', 'ALTER', 'CONTROL')
