//! The types of columns in KTX's files. KTX derives them from the names of the types in the database, by rules that differ
//! by driver; the files must not change when KTX scans the database again.

/// What KTX distinguishes: `time`, `number`, `boolean` or `string`.
pub(super) fn dimension_type(driver: &str, native: &str) -> &'static str {
    let lower = native.trim().to_lowercase();
    // KTX looks at the whole type in BigQuery.
    let name = match driver {
        "bigquery" => lower.as_str(),
        _ => lower.split('(').next().unwrap_or_default().trim(),
    };
    let (exact, parts): (&[(&str, &str)], &[&str]) = match driver {
        "postgres" | "redshift" => (
            &[("real", "number"), ("money", "number")],
            &["int", "num", "dec", "float", "double"],
        ),
        "bigquery" => (&[], &["int", "num", "float"]),
        "snowflake" => (
            &[("real", "number")],
            &["int", "num", "dec", "float", "double"],
        ),
        "mysql" if lower.contains("tinyint(1)") => return "boolean",
        "mysql" => (
            &[("real", "number"), ("year", "time"), ("bit", "boolean")],
            &["int", "num", "dec", "float", "double"],
        ),
        "sqlserver" => (
            &[("real", "number"), ("bit", "boolean")],
            &["int", "num", "dec", "float", "money"],
        ),
        "sqlite" => (&[], &["int", "num", "real", "float", "double"]),
        // KTX has no rules for other databases. Lists, structures and intervals are not numbers, whatever they contain.
        _ if is_nested(&lower) => return "string",
        _ => (
            &[("real", "number"), ("interval", "string")],
            &["int", "num", "dec", "float", "double"],
        ),
    };
    if let Some((_, found)) = exact.iter().find(|(exact, _)| *exact == name) {
        return found;
    }
    let contains = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if contains(&["time", "date"]) {
        "time"
    } else if contains(parts) {
        "number"
    } else if contains(&["bool"]) || driver == "mysql" && name.contains("bit") {
        "boolean"
    } else {
        "string"
    }
}

fn is_nested(native: &str) -> bool {
    native.ends_with(']')
        || ["struct", "map", "array", "list", "union", "enum"]
            .iter()
            .any(|kind| native.starts_with(kind))
}

/// The `normalizedType` of KTX's files.
pub(super) fn normalized_type(driver: &str, native: &str) -> String {
    if driver != "bigquery" {
        return native.to_owned();
    }
    let upper = native.trim().to_uppercase();
    let known = match upper.as_str() {
        "RECORD" | "STRUCT" | "JSON" => "JSON",
        "STRING" => "VARCHAR",
        "BYTES" => "VARBINARY",
        "INTEGER" | "INT64" => "BIGINT",
        "FLOAT" | "FLOAT64" => "DOUBLE",
        "NUMERIC" | "BIGNUMERIC" => "DECIMAL",
        "BOOLEAN" | "BOOL" => "BOOLEAN",
        _ => return upper,
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_the_rules_of_the_driver() {
        for (driver, types) in [
            (
                "postgres",
                "timestamp with time zone=time character varying(20)=string numeric(10,2)=number bool=boolean \
                jsonb=string money=number double precision=number =string",
            ),
            (
                "bigquery",
                "INT64=number ARRAY<INT64>=number DATETIME=time STRING(20)=string BOOL=boolean",
            ),
            (
                "snowflake",
                "TIMESTAMP_NTZ(9)=time NUMBER(38,0)=number REAL=number VARIANT=string BOOLEAN=boolean",
            ),
            (
                "mysql",
                "tinyint(1)=boolean tinyint=number year=time bit(1)=boolean mediumtext=string decimal(9,2)=number",
            ),
            (
                "sqlserver",
                "bit=boolean uniqueidentifier=string smallmoney=number datetimeoffset=time real=number",
            ),
            (
                "sqlite",
                "INTEGER=number DECIMAL(9,2)=string REAL=number DATETIME=time TEXT=string",
            ),
            (
                "duckdb",
                "HUGEINT=number INTEGER[]=string STRUCT(a INTEGER)=string INTERVAL=string TIMESTAMP=time \
                DECIMAL(18,3)=number",
            ),
            (
                "databricks",
                "bigint=number array<int>=string map<string,int>=string date=time double=number",
            ),
        ] {
            for (native, expected) in split_pairs(types) {
                assert_eq!(
                    dimension_type(driver, &native),
                    expected,
                    "{driver}: {native}"
                );
            }
        }
        assert_eq!(normalized_type("bigquery", "int64"), "BIGINT");
        assert_eq!(normalized_type("bigquery", "Geography"), "GEOGRAPHY");
        assert_eq!(normalized_type("postgres", "int4"), "int4");
    }

    /// Types with blanks are separated by the names of the results.
    fn split_pairs(text: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        let mut native = String::new();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match word.rsplit_once('=') {
                Some((end, expected)) => {
                    pairs.push((format!("{native}{end}"), expected.to_owned()));
                    native.clear();
                }
                None => native.push_str(&format!("{word} ")),
            }
        }
        pairs
    }
}
