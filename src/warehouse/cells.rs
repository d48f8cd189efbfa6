//! One value of an Arrow column as a cell of an answer.

use arrow_array::{
    Array, BinaryArray, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, FixedSizeListArray, IntervalDayTimeArray, IntervalMonthDayNanoArray,
    IntervalYearMonthArray, LargeBinaryArray, LargeListArray, LargeStringArray, ListArray,
    MapArray, PrimitiveArray, StringArray, StringViewArray, StructArray,
    cast::AsArray as _,
    temporal_conversions::{as_datetime, as_time},
    types::{
        ArrowPrimitiveType, Date32Type, Date64Type, Float32Type, Float64Type, Int8Type, Int16Type,
        Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
        Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
        TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
        UInt64Type,
    },
};
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};

use ingestdeck_ingest::SqlCell;

/// Most nested values of a list, a struct or a map.
const MAX_NESTED: usize = 100;

/// The value in `row`; texts are cut after `widest` characters.
pub(crate) fn cell(column: &dyn Array, field: &Field, row: usize, widest: usize) -> SqlCell {
    if column.is_null(row) || *column.data_type() == DataType::Null {
        return SqlCell::Null;
    }
    let extension = field.metadata().get("ARROW:extension:name");
    if let Some(bytes) = bytes(column, row) {
        return match (extension.map(String::as_str), bytes.len()) {
            (Some("arrow.uuid"), 16) => SqlCell::text(&uuid(bytes), widest),
            _ => SqlCell::blob(bytes),
        };
    }
    match number(column, row) {
        Some(cell) => cell,
        None => SqlCell::text(&text(column, field, row), widest),
    }
}

fn number(column: &dyn Array, row: usize) -> Option<SqlCell> {
    fn value<T: ArrowPrimitiveType>(column: &dyn Array, row: usize) -> Option<T::Native> {
        Some(column.as_primitive_opt::<T>()?.value(row))
    }
    let int = |value: i64| Some(SqlCell::Int(value));
    match column.data_type() {
        DataType::Int8 => int(value::<Int8Type>(column, row)?.into()),
        DataType::Int16 => int(value::<Int16Type>(column, row)?.into()),
        DataType::Int32 => int(value::<Int32Type>(column, row)?.into()),
        DataType::Int64 => int(value::<Int64Type>(column, row)?),
        DataType::UInt8 => int(value::<UInt8Type>(column, row)?.into()),
        DataType::UInt16 => int(value::<UInt16Type>(column, row)?.into()),
        DataType::UInt32 => int(value::<UInt32Type>(column, row)?.into()),
        // Larger numbers become texts.
        DataType::UInt64 => int(value::<UInt64Type>(column, row)?.try_into().ok()?),
        DataType::Float32 => Some(SqlCell::Real(value::<Float32Type>(column, row)?.into())),
        DataType::Float64 => Some(SqlCell::Real(value::<Float64Type>(column, row)?)),
        _ => None,
    }
}

fn bytes(column: &dyn Array, row: usize) -> Option<&[u8]> {
    fn as_array<T: 'static>(column: &dyn Array) -> Option<&T> {
        column.as_any().downcast_ref::<T>()
    }
    as_array::<BinaryArray>(column)
        .map(|array| array.value(row))
        .or_else(|| as_array::<LargeBinaryArray>(column).map(|array| array.value(row)))
        .or_else(|| as_array::<BinaryViewArray>(column).map(|array| array.value(row)))
        .or_else(|| as_array::<FixedSizeBinaryArray>(column).map(|array| array.value(row)))
}

/// The value in `row` as the warehouse would write it.
fn text(column: &dyn Array, field: &Field, row: usize) -> String {
    let any = column.as_any();
    match column.data_type() {
        DataType::Utf8 => any
            .downcast_ref::<StringArray>()
            .map(|array| array.value(row).to_owned()),
        DataType::LargeUtf8 => any
            .downcast_ref::<LargeStringArray>()
            .map(|array| array.value(row).to_owned()),
        DataType::Utf8View => any
            .downcast_ref::<StringViewArray>()
            .map(|array| array.value(row).to_owned()),
        DataType::Boolean => any
            .downcast_ref::<BooleanArray>()
            .map(|array| array.value(row).to_string()),
        DataType::UInt64 => column
            .as_primitive_opt::<UInt64Type>()
            .map(|array| array.value(row).to_string()),
        DataType::Decimal128(..) => any
            .downcast_ref::<Decimal128Array>()
            .map(|array| array.value_as_string(row)),
        DataType::Decimal256(..) => any
            .downcast_ref::<Decimal256Array>()
            .map(|array| array.value_as_string(row)),
        DataType::Date32 => date::<Date32Type>(column, row),
        DataType::Date64 => date::<Date64Type>(column, row),
        DataType::Time32(TimeUnit::Second) => time::<Time32SecondType>(column, row),
        DataType::Time32(_) => time::<Time32MillisecondType>(column, row),
        DataType::Time64(TimeUnit::Microsecond) => time::<Time64MicrosecondType>(column, row),
        DataType::Time64(_) => time::<Time64NanosecondType>(column, row),
        DataType::Timestamp(unit, zone) => {
            let text = match unit {
                TimeUnit::Second => timestamp::<TimestampSecondType>(column, row),
                TimeUnit::Millisecond => timestamp::<TimestampMillisecondType>(column, row),
                TimeUnit::Microsecond => timestamp::<TimestampMicrosecondType>(column, row),
                TimeUnit::Nanosecond => timestamp::<TimestampNanosecondType>(column, row),
            };
            // Arrow stores the moment in UTC; the zone is only how the warehouse would show it.
            text.map(|text| {
                if zone.is_some() {
                    format!("{text} UTC")
                } else {
                    text
                }
            })
        }
        DataType::Interval(unit) => interval(column, *unit, row),
        DataType::List(item) => any
            .downcast_ref::<ListArray>()
            .map(|array| list(array.value(row).as_ref(), item)),
        DataType::LargeList(item) => any
            .downcast_ref::<LargeListArray>()
            .map(|array| list(array.value(row).as_ref(), item)),
        DataType::FixedSizeList(item, _) => any
            .downcast_ref::<FixedSizeListArray>()
            .map(|array| list(array.value(row).as_ref(), item)),
        DataType::Struct(_) => any
            .downcast_ref::<StructArray>()
            .map(|array| fields(array, row)),
        DataType::Map(..) => any.downcast_ref::<MapArray>().map(|array| {
            let entries = array.value(row);
            let entries = (0..entries.len().min(MAX_NESTED)).map(|row| fields(&entries, row));
            format!("[{}]", entries.collect::<Vec<_>>().join(", "))
        }),
        DataType::Dictionary(..) => column.as_any_dictionary_opt().and_then(|array| {
            let key = array.normalized_keys().get(row).copied()?;
            let values = array.values();
            let item = Field::new("item", values.data_type().clone(), true);
            Some(nested(values.as_ref(), &item, key))
        }),
        _ => None,
    }
    .unwrap_or_else(|| format!("<{}: cast it to a text>", field.data_type()))
}

fn nested(column: &dyn Array, field: &Field, row: usize) -> String {
    match cell(column, field, row, usize::MAX) {
        SqlCell::Text { head, .. } => head,
        other => other.to_string(),
    }
}

fn list(items: &dyn Array, item: &Field) -> String {
    let shown = (0..items.len().min(MAX_NESTED)).map(|row| nested(items, item, row));
    let more = if items.len() > MAX_NESTED {
        ", …"
    } else {
        ""
    };
    format!("[{}{more}]", shown.collect::<Vec<_>>().join(", "))
}

fn fields(array: &StructArray, row: usize) -> String {
    let values = array.columns().iter().zip(array.fields());
    let texts = values.take(MAX_NESTED).map(|(column, field)| {
        format!("{}: {}", field.name(), nested(column.as_ref(), field, row))
    });
    format!("{{{}}}", texts.collect::<Vec<_>>().join(", "))
}

fn date<T: ArrowPrimitiveType>(column: &dyn Array, row: usize) -> Option<String>
where
    i64: From<T::Native>,
{
    let value = column.as_primitive_opt::<T>()?.value(row);
    Some(as_datetime::<T>(value.into())?.date().to_string())
}

fn time<T: ArrowPrimitiveType>(column: &dyn Array, row: usize) -> Option<String>
where
    i64: From<T::Native>,
{
    let value = column.as_primitive_opt::<T>()?.value(row);
    Some(as_time::<T>(value.into())?.to_string())
}

fn timestamp<T: ArrowPrimitiveType>(column: &dyn Array, row: usize) -> Option<String>
where
    i64: From<T::Native>,
{
    let array: &PrimitiveArray<T> = column.as_primitive_opt::<T>()?;
    Some(as_datetime::<T>(array.value(row).into())?.to_string())
}

fn interval(column: &dyn Array, unit: IntervalUnit, row: usize) -> Option<String> {
    let any = column.as_any();
    let (months, days, nanoseconds) = match unit {
        IntervalUnit::YearMonth => {
            let array = any.downcast_ref::<IntervalYearMonthArray>()?;
            (array.value(row), 0, 0)
        }
        IntervalUnit::DayTime => {
            let value = any.downcast_ref::<IntervalDayTimeArray>()?.value(row);
            (0, value.days, i64::from(value.milliseconds) * 1_000_000)
        }
        IntervalUnit::MonthDayNano => {
            let value = any.downcast_ref::<IntervalMonthDayNanoArray>()?.value(row);
            (value.months, value.days, value.nanoseconds)
        }
    };
    let seconds = nanoseconds / 1_000_000_000;
    Some(format!("{months} months {days} days {seconds} s"))
}

fn uuid(bytes: &[u8]) -> String {
    let hex = |part: &[u8]| {
        part.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let ends = [(0, 4), (4, 6), (6, 8), (8, 10), (10, 16)];
    let parts = ends
        .iter()
        .map(|(from, to)| hex(bytes.get(*from..*to).unwrap_or_default()));
    parts.collect::<Vec<_>>().join("-")
}
