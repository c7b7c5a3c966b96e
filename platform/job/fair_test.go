package job_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// F47, DESIGN 4: lanes without limits and with much to do share turns as a model of one
// line does, whatever their weights and costs and however many are admitted at once:
// what each lane has had stays within one job's largest cost of it.
func TestSharesAreFair(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seeds(t, 3*time.Second, func(seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		type lane struct {
			scope      string
			weight, vt float64
			costs      []int // in the order of submits; those done are gone
			want, got  float64
		}
		topic, most := fmt.Sprintf("job.fair.t%d", seed), 0
		lanes := map[string]*lane{}
		var order []*lane
		for i := range 2 + r.IntN(9) {
			l := &lane{scope: fmt.Sprintf("org:f%d.s%d", seed, i), weight: float64([]int{1, 1, 1, 2, 5}[r.IntN(5)])}
			order = append(order, l)
			lanes[l.scope] = l
			w.exec(`select mill.limit_scope($1, null, $2)`, l.scope, l.weight)
			for range 4 {
				cost := 1 + max(0, r.IntN(9)-4)
				most = max(most, cost)
				for range 50 {
					l.costs = append(l.costs, cost)
				}
				w.put(50, topic, fmt.Sprintf(`{"scope":%q,"cost":%d}`, l.scope, cost))
			}
		}
		host := fmt.Sprintf("f%d", seed)
		w.exec(`insert into pgmill.instance (kind, id, ttl, since) values ('worker', $1, '1 h', now() - interval '2 h')`, host)
		log := ""
		for done := 0; done < 100; {
			slots := 1 + r.IntN([]int{3, 15, 60}[r.IntN(3)])
			log += fmt.Sprint(slots, " ")
			done += slots
			for range slots {
				var next *lane
				turn := math.Inf(1)
				for _, l := range order {
					if at := l.vt + float64(l.costs[0])/l.weight; at < turn {
						next, turn = l, at
					}
				}
				next.vt = turn
				next.want += float64(next.costs[0])
				next.costs = next.costs[1:]
			}
			rows, err := w.pool.Query(t.Context(), `select a.scope, sum(j.cost)::int from pgmill.admit($1, array[$2], $3) a join pgmill.job j on j.id = a.job group by 1`, host, topic, slots)
			if err != nil {
				t.Fatal(err)
			}
			var scope string
			var cost int
			if _, err := pgx.ForEachRow(rows, []any{&scope, &cost}, func() error { lanes[scope].got += float64(cost); return nil }); err != nil {
				t.Fatal(err)
			}
			for _, l := range order {
				if math.Abs(l.got-l.want) > float64(most) {
					t.Fatalf("PGMILL_SEED=%d: after %sadmitted, %d lanes: one of weight %v has had %v, want %v within %d", seed, log, len(order), l.weight, l.got, l.want, most)
				}
			}
		}
		w.exec(`select pgmill.end_claims(array_agg(id), null, null, null, array_agg(null::jsonb)) from pgmill.river_job where kind = $1`, topic)
		w.exec(`with gone as (delete from pgmill.job_waiting where topic = $1 returning job) update pgmill.job j set state = 'CANCELLED' from gone g where j.id = g.job`, topic)
		w.exec(`update pgmill.instance set deregistered_at = now() where id = $1`, host)
	})
}
