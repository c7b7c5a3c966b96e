package connectors

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// Aggregate counts how many of a connector's instances are how healthy, whenever one's
// health changes. Replayable: it counts what is there, whichever event it is for.
var Aggregate = platform.Subscription{
	Name:       "connectors.health",
	Module:     Module.Name,
	Events:     []string{HealthChanged},
	Owners:     platform.OwnedBy(Module.Name, "posture"),
	From:       platform.FromZero,
	Replayable: true,
	OnPoison:   platform.Park,
	Handle:     aggregate,
}

func aggregate(ctx context.Context, tx pgx.Tx, e platform.Event) error {
	changed, err := platform.Data[Changed](e)
	if err != nil {
		return err
	}
	// The connector's row is locked first: instances of one connector are counted by
	// different shards, and the later one must see what the earlier one saw.
	if _, err := tx.Exec(ctx, `select from connectors.connector where id = $1 for update`, changed.Connector); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into connectors.health as h (connector, status, healthy, degraded, failing, since, event_id)
		select c.id, case when n.failing > 0 then 'failing' when n.degraded > 0 then 'degraded' else 'healthy' end,
		       n.healthy, n.degraded, n.failing, now(), $2
		from connectors.connector c
		cross join lateral (
			select count(*) filter (where status = 'healthy') as healthy,
			       count(*) filter (where status = 'degraded') as degraded,
			       count(*) filter (where status = 'failing') as failing
			from connectors.instance i
			where i.connector = c.id) n
		where c.id = $1
		on conflict (connector) do update
		set status = excluded.status, healthy = excluded.healthy, degraded = excluded.degraded, failing = excluded.failing,
		    since = case when h.status = excluded.status then h.since else excluded.since end,
		    event_id = greatest(h.event_id, excluded.event_id)`, changed.Connector, e.ID)
	return err
}
