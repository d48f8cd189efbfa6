//! Whether the type of a column in a database can be the type that a source states.

/// Types of sources, each with words that begin native types of that kind, in lower case.
const KINDS: [(&str, &[&str]); 4] = [
    (
        "number",
        &[
            "int",
            "integer",
            "bigint",
            "smallint",
            "mediumint",
            "hugeint",
            "uint",
            "ubigint",
            "byteint",
            "int2",
            "int4",
            "int8",
            "int64",
            "number",
            "numeric",
            "decimal",
            "dec",
            "bignumeric",
            "bigdecimal",
            "float",
            "float4",
            "float8",
            "float64",
            "double",
            "real",
            "money",
            "serial",
            "bigserial",
        ],
    ),
    (
        "string",
        &[
            "char",
            "character",
            "varchar",
            "varchar2",
            "nchar",
            "nvarchar",
            "bpchar",
            "text",
            "tinytext",
            "mediumtext",
            "longtext",
            "ntext",
            "string",
            "clob",
        ],
    ),
    (
        "time",
        &[
            "date",
            "datetime",
            "datetime2",
            "datetimeoffset",
            "smalldatetime",
            "time",
            "timetz",
            "timestamp",
            "timestamptz",
            "timestamp_ntz",
            "timestamp_ltz",
            "timestamp_tz",
        ],
    ),
    ("boolean", &["bool", "boolean"]),
];

/// True if a column of the type `native` certainly is of another type than `stated`. Numbers may be used as booleans.
pub(super) fn differs(native: &str, stated: &str) -> bool {
    let native = native.trim().to_lowercase();
    let end = native.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (word, rest) = native.split_at(end.unwrap_or(native.len()));
    // Arrays and nested types begin as others do: `integer[]`.
    let kind = KINDS.iter().find(|(_, words)| words.contains(&word));
    let is_known = KINDS.iter().any(|(kind, _)| *kind == stated);
    match kind {
        Some((kind, _)) if is_known && !rest.contains(['[', '<']) => {
            *kind != stated && (*kind, stated) != ("number", "boolean")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certain_conflicts_are_reported() {
        for (native, stated) in [
            ("VARCHAR(20)", "number"),
            ("BIGINT", "time"),
            ("numeric(10, 2)", "string"),
            ("timestamp with time zone", "string"),
            ("Boolean", "number"),
            ("TEXT", "boolean"),
        ] {
            assert!(differs(native, stated), "{native} {stated}");
        }
        for (native, stated) in [
            ("integer", "number"),
            ("character varying(10)", "string"),
            ("TINYINT(1)", "boolean"),
            ("int", "boolean"),
            ("int[]", "string"),
            ("uuid", "number"),
            ("", "number"),
            ("interval day", "time"),
            ("date", "odd"),
            ("TIMESTAMP_NTZ(9)", "time"),
        ] {
            assert!(!differs(native, stated), "{native} {stated}");
        }
    }
}
