package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

const (
	archiveTake  = 5_000            // events of one transaction
	archiveDrops = 30 * time.Second // how long a partition that is being read is tried again
)

func eventsCommand(o *options) *cobra.Command {
	return group("events", "Archive events", eventsArchive(o))
}

// archivePlan is what an archive would take, or took.
type archivePlan struct {
	From     int64      `json:"from"`     // the first position that is there
	To       int64      `json:"to"`       // the last that goes; below From: nothing does
	Events   int64      `json:"events"`   // how many that are
	Head     int64      `json:"head"`     // the last position there is
	FirstAt  *time.Time `json:"first_at"` // when the first of them got its position,
	LastAt   *time.Time `json:"last_at"`  // and the last
	Needed   int64      `json:"needed"`   // readers that need some of them: nothing goes
	NeededBy []string   `json:"needed_by"`
	DryRun   bool       `json:"dry_run"`
	Archived int64      `json:"archived"` // events that are gone
	Dropped  int        `json:"dropped"`  // partitions of the log that went as a whole
	Left     int        `json:"left"`     // partitions that somebody reads; the next archive drops them

	neededFrom *int64
}

const planArchive = `
select p.archived + 1, p.upto, p.upto - p.archived, p.head, p.first_at, p.last_at, p.needed, p.needed_by, p.needed_from
  from pgmill.archive_plan($1) p`

func eventsArchive(o *options) *cobra.Command {
	var before, reason string
	var dry, sure bool
	cmd := &cobra.Command{Use: "archive --before POSITION|TIME|AGE", Args: cobra.NoArgs,
		Short: "Delete events that no reader needs any more, as the owner of the database",
		Long: "Deletes events before a position, a time or an age, for good: take a backup first.\n" +
			"What a cursor, a parked key, a replay or a reshard still needs is refused, and named.\n" +
			"Traffic goes on meanwhile. Ended half way, it goes on from there when it is run again.\n" +
			"It is the owner's: hosts' own role cannot delete events.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if before == "" {
				return usageError{errors.New("host events archive: say --before POSITION, --before TIME or --before 90d")}
			}
			cfg, err := o.config(cmd, true)
			if err != nil {
				return err
			}
			return o.withConn(cmd.Context(), cfg, "", func(conn *pgx.Conn) error {
				return o.archive(cmd.Context(), conn, before, nullable(reason), dry, sure)
			})
		}}
	cmd.Flags().StringVar(&before, "before", "", "a position as in mill.events, a time like 2026-11-29T18:00:00Z, or an age like 90d")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "show what would go, and what keeps it")
	cmd.Flags().BoolVar(&sure, "yes", false, "do it without asking")
	return cmd
}

func (o *options) archive(ctx context.Context, conn *pgx.Conn, before string, reason *string, dry, sure bool) error {
	p := archivePlan{DryRun: dry}
	if err := conn.QueryRow(ctx, planArchive, before).Scan(&p.From, &p.To, &p.Events, &p.Head, &p.FirstAt, &p.LastAt, &p.Needed, &p.NeededBy, &p.neededFrom); err != nil {
		return err
	}
	switch {
	case p.Needed > 0:
		return errors.Join(o.showArchive(p), p.refusal())
	case dry:
		return o.showArchive(p)
	case p.Events > 0 && !sure:
		if err := o.ask(ctx, fmt.Sprintf("Events at positions %d to %d, %d of them, are deleted for good.", p.From, p.To, p.Events)); err != nil {
			return err
		}
	}
	if p.Events > 0 {
		if _, err := conn.Exec(ctx, "select pgmill.begin_archive($1, $2)", p.To, reason); err != nil {
			return err
		}
	}
	if err := p.take(ctx, conn, newProgress(o.stderr)); err != nil {
		return fmt.Errorf("archived up to position %d; run it again to go on: %w", p.From-1+p.Archived, err)
	}
	return o.showArchive(p)
}

// refusal names who needs what would go, and the command that would do.
func (p archivePlan) refusal() error {
	more := ""
	if n := p.Needed - int64(len(p.NeededBy)); n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return conflict(fmt.Sprintf("nothing was archived: %d readers need events up to position %d: %s%s; archive --before %d, or have them go on (host subscription resume, unpark, drop; move --to now for one that is no longer there)",
		p.Needed, p.To, strings.Join(p.NeededBy, "; "), more, *p.neededFrom))
}

// conflict is a refusal that the command found itself, before the database did.
type conflict string

func (c conflict) Error() string { return string(c) }

// take archives batch by batch, then drops partitions. Also when nothing is to be
// archived: a partition may be left of last time.
func (p *archivePlan) take(ctx context.Context, conn *pgx.Conn, shown *progress) error {
	defer shown.end()
	for p.Archived < p.Events {
		var upto int64
		if err := conn.QueryRow(ctx, "select pgmill.archive_batch($1, $2)", p.To, archiveTake).Scan(&upto); err != nil {
			return err
		}
		p.Archived = min(upto, p.To) - p.From + 1
		shown.say("archived %d of %d events, up to position %d", p.Archived, p.Events, upto)
	}
	patience, cancel := context.WithTimeout(ctx, archiveDrops)
	defer cancel()
	for {
		var dropped int
		if err := conn.QueryRow(ctx, "select dropped, remaining from pgmill.drop_archived()").Scan(&dropped, &p.Left); err != nil {
			return err
		}
		p.Dropped += dropped
		if dropped > 0 {
			shown.say("dropped %d partitions of the log", p.Dropped)
			continue
		}
		if p.Left == 0 {
			return nil
		}
		shown.say("%d partitions of the log are being read; waiting", p.Left)
		select {
		case <-patience.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (o *options) showArchive(p archivePlan) error {
	if o.output == "json" {
		return printJSON(o.stdout, p)
	}
	return p.show(o.stdout)
}

func (p archivePlan) show(w io.Writer) error {
	verb := "archived"
	switch {
	case p.Needed > 0, p.DryRun:
		verb = "would archive"
	}
	if p.Events == 0 {
		_, err := fmt.Fprintf(w, "nothing to archive before position %d; partitions dropped: %d\n", p.To+1, p.Dropped)
		return err
	}
	left := ""
	if p.Left > 0 {
		left = fmt.Sprintf("; %d are being read and go with the next archive", p.Left)
	}
	_, err := fmt.Fprintf(w, "%s %d events at positions %d to %d, from %s to %s; head %d; partitions dropped: %d%s\n",
		verb, p.Events, p.From, p.To, cell(p.FirstAt), cell(p.LastAt), p.Head, p.Dropped, left)
	return err
}
