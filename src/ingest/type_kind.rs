//! What the values of a column are, by the name of its type in any database or in KTX's files.

/// What values of a type are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypeKind {
    Text,
    Number,
    Time,
    Boolean,
}

impl TypeKind {
    /// The kind of a type; `None` for one that is not known, such as `json`, and for lists and structures.
    pub(crate) fn of(declared: &str) -> Option<Self> {
        let lower = declared.trim().to_lowercase();
        // ClickHouse wraps types: `Nullable(Int64)`.
        let inner = ["lowcardinality(", "nullable("]
            .iter()
            .fold(lower.as_str(), |of, wrapper| {
                of.strip_prefix(wrapper)
                    .map_or(of, |of| of.trim_end_matches(')'))
            });
        let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_');
        let (word, rest) = inner.split_at(end.unwrap_or(inner.len()));
        // Lists begin as other types do: `integer[]`.
        if rest.contains(['[', '<']) {
            return None;
        }
        let word = ["_ntz", "_ltz", "_tz"]
            .iter()
            .find_map(|zone| word.strip_suffix(zone))
            .unwrap_or(word);
        // The size or version of a type, as in `int8` and `datetime2`.
        Some(match word.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "string" | "text" | "varchar" | "nvarchar" | "char" | "nchar" | "bpchar"
            | "character" | "tinytext" | "mediumtext" | "longtext" | "ntext" | "clob"
            | "citext" | "fixedstring" | "enum" | "uuid" | "uniqueidentifier" => Self::Text,
            "number" | "int" | "integer" | "bigint" | "smallint" | "tinyint" | "mediumint"
            | "hugeint" | "byteint" | "uint" | "ubigint" | "uinteger" | "usmallint"
            | "utinyint" | "serial" | "bigserial" | "decimal" | "numeric" | "bignumeric"
            | "bigdecimal" | "dec" | "fixed" | "float" | "double" | "real" | "money"
            | "smallmoney" | "long" | "short" => Self::Number,
            "time" | "date" | "datetime" | "smalldatetime" | "datetimeoffset" | "timestamp"
            | "timestamptz" | "timetz" => Self::Time,
            "boolean" | "bool" => Self::Boolean,
            _ => return None,
        })
    }

    /// Whether a column of this kind cannot have the type `stated` of a source. Databases without booleans use numbers.
    pub(crate) fn contradicts(self, stated: &str) -> bool {
        let stated = match stated {
            "string" => Self::Text,
            "number" => Self::Number,
            "time" => Self::Time,
            "boolean" => Self::Boolean,
            _ => return false,
        };
        self != stated && (self, stated) != (Self::Number, Self::Boolean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_types_do_not_depend_on_the_database() {
        for (kind, types) in [
            (
                Some(TypeKind::Number),
                "bigint|NUMBER(38,0)|float8|Nullable(Int64)|numeric(10, 2)|TINYINT(1)|double precision",
            ),
            (
                Some(TypeKind::Text),
                "VARCHAR(255)|character varying(10)|varchar2(9)|uuid|LowCardinality(String)",
            ),
            (
                Some(TypeKind::Time),
                "timestamp with time zone|DATETIME2|TIMESTAMP_NTZ(9)|timestamp_tz|date",
            ),
            (Some(TypeKind::Boolean), "bool|BOOLEAN"),
            (
                None,
                "json|geography|int[]|array<int>|map<string,int>|int4range|interval day|struct(a int)|",
            ),
        ] {
            for of in types.split('|') {
                assert_eq!(TypeKind::of(of), kind, "{of}");
            }
        }
    }

    #[test]
    fn only_certain_conflicts_are_contradictions() {
        let differs = |native: &str, stated| {
            TypeKind::of(native).is_some_and(|kind| kind.contradicts(stated))
        };
        for (native, stated) in [
            ("VARCHAR(20)", "number"),
            ("BIGINT", "time"),
            ("numeric(10, 2)", "string"),
            ("timestamp with time zone", "string"),
            ("Boolean", "number"),
            ("TEXT", "boolean"),
            ("uuid", "number"),
        ] {
            assert!(differs(native, stated), "{native} {stated}");
        }
        for (native, stated) in [
            ("integer", "number"),
            ("TINYINT(1)", "boolean"),
            ("int", "boolean"),
            ("int[]", "string"),
            ("", "number"),
            ("date", "odd"),
        ] {
            assert!(!differs(native, stated), "{native} {stated}");
        }
    }
}
