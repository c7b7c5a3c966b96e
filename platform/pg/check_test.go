package pg_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/pgmill/pgmill/platform/pg"
)

func TestCheckOfADatabaseThatIsNotMigrated(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		migrate bool
		change  string
		want    error
	}{
		{"an empty one", false, ``, pg.ErrNotMigrated},
		{"one with River's tables only", false, `create schema pgmill; create table pgmill.river_job (id bigint)`, pg.ErrNotMigrated},
		{"one without code", true, `delete from pgmill.build`, pg.ErrNotMigrated},
		{"one with older code", true, `update pgmill.build set ordinal = 0`, pg.ErrNotMigrated},
		{"one that lacks a migration", true, `delete from pgmill.goose_db_version where version_id = (select max(version_id) from pgmill.goose_db_version)`, pg.ErrNotMigrated},
		{"one with a migration more, of a newer build", true, `insert into pgmill.goose_db_version (version_id, is_applied) values (999999, true); update pgmill.build set ordinal = 999`, nil},
		{"one that is as it should be", true, ``, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn, pool := empty(t)
			if tt.migrate {
				migrate(t, dsn)
			}
			must(t, pool, tt.change)
			err := pg.Check(t.Context(), pool)
			if !errors.Is(err, tt.want) {
				t.Errorf("Check = %v, want %v", err, tt.want)
			}
			if tt.want != nil && !strings.Contains(err.Error(), "host migrate up") {
				t.Errorf("Check = %v; want the command", err)
			}
		})
	}
}

var grant = regexp.MustCompile("`(GRANT [^`]+;)`")

// F83: a runtime role has DML only; what it lacks is named with the exact GRANT, and
// running that is enough.
func TestCheckNamesTheMissingGrant(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		groups []string
		revoke string
		lacks  string // "": nothing
	}{
		{"a member of pgmill_runtime lacks nothing", []string{"pgmill_runtime"}, ``, ""},
		{"a role without any rights", nil, ``, "usage on schema"},
		{"a reader", []string{"mill_reader"}, ``, "on table pgmill."},
		{"without a table's insert", []string{"pgmill_runtime"}, `revoke insert on pgmill.cursor from pgmill_runtime`, "insert on table pgmill.cursor"},
		{"without River's table", []string{"pgmill_runtime"}, `revoke all on pgmill.river_job from pgmill_runtime`, "delete on table pgmill.river_job"},
		{"without a sequence", []string{"pgmill_runtime"}, `revoke all on sequence pgmill.event_id from pgmill_runtime, pgmill_api`, "usage on sequence pgmill.event_id"},
		{"without a function", []string{"pgmill_runtime"}, `revoke execute on function pgmill.advance() from pgmill_runtime`, "execute on function pgmill.advance()"},
		{"without the schema", []string{"pgmill_runtime"}, `revoke usage on schema pgmill from pgmill_runtime, pgmill_api, pgmill_cleanup`, "usage on schema pgmill"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn, pool := empty(t)
			migrate(t, dsn)
			role, as := newRole(t, dsn, tt.groups...)
			must(t, pool, tt.revoke)
			err := pg.Check(t.Context(), open(t, as))
			if tt.lacks == "" {
				if err != nil {
					t.Errorf("Check = %v", err)
				}
				return
			}
			if !errors.Is(err, pg.ErrGrantMissing) || !strings.Contains(err.Error(), tt.lacks) || !strings.Contains(err.Error(), role) {
				t.Fatalf("Check = %v; want %q named as missing", err, tt.lacks)
			}
			if tt.revoke != "" { // a single right: the last command given, as it stands
				all := grant.FindAllStringSubmatch(err.Error(), -1)
				must(t, pool, all[len(all)-1][1])
				if tt.name == "without River's table" { // four rights, one command each
					must(t, pool, `grant select, insert, update, delete on table pgmill.river_job to `+role)
				}
			} else {
				must(t, pool, grant.FindStringSubmatch(err.Error())[1])
			}
			if err := pg.Check(t.Context(), open(t, as)); err != nil {
				t.Errorf("Check after the GRANT it named = %v", err)
			}
		})
	}
}
