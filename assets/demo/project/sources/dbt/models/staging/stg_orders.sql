select
    id as order_id,
    customer_id,
    channel,
    status,
    placed_at at time zone '{{ var("shop_timezone") }}' as placed_at_local
from {{ source('shop', 'orders') }}
where status <> 'draft'
