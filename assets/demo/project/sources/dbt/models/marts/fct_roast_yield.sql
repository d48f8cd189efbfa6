select
    batch_id,
    roasted_at::date as day,
    green_kg,
    roasted_kg,
    roasted_kg / nullif(green_kg, 0) as yield
from {{ source('roastery', 'batches') }}
