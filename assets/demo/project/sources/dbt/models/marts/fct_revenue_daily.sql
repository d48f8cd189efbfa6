with lines as (
    select
        o.placed_at_local::date as day,
        o.channel,
        l.bags,
        l.bags * l.unit_price_eur / (1 + l.vat_rate) as net_eur
    from {{ ref('stg_orders') }} o
    join {{ source('shop', 'order_lines') }} l using (order_id)
    where o.status <> 'cancelled'
),

refunded as (
    select
        o.placed_at_local::date as day,
        o.channel,
        sum(r.amount_eur / 1.06) as refunded_eur
    from {{ source('shop', 'refunds') }} r
    join {{ ref('stg_orders') }} o using (order_id)
    group by 1, 2
)

select
    day,
    channel,
    sum(bags) as bags,
    sum(net_eur) - coalesce(max(refunded_eur), 0) as net_revenue_eur
from lines
left join refunded using (day, channel)
group by 1, 2
