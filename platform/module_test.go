package platform_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pgmill/pgmill/platform"
)

// files are migrations of these names.
func files(names ...string) fstest.MapFS {
	all := fstest.MapFS{}
	for _, name := range names {
		all[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n")}
	}
	return all
}

func TestAModuleThatIsWrongIsRefusedInOneLine(t *testing.T) {
	t.Parallel()
	good := files("0001_stock.sql")
	for _, tt := range []struct {
		name       string
		module     string
		migrations fs.FS
		want       string // "": it is right
	}{
		{"files at the root", "stock", good, ""},
		{"files in the one folder that is embedded", "stock", files("migrations/0001_stock.sql", "migrations/0010_more.sql", "README.md"), ""},
		{"a name of 48 bytes", strings.Repeat("s", 48), good, ""},
		{"a name of 49 bytes", strings.Repeat("s", 49), good, "at most 48 bytes"},
		{"no name", "", good, `module ""`},
		{"a name with a dot", "stock.de", good, "it names a schema"},
		{"a name with upper case", "Stock", good, "it names a schema"},
		{"a name that begins with a digit", "1stock", good, "it names a schema"},
		{"a name with a quote", `st"ock`, good, "it names a schema"},
		{"our schema", "mill", good, "not a module's to have"},
		{"our private schema", "pgmill", good, "not a module's to have"},
		{"everybody's schema", "public", good, "not a module's to have"},
		{"the server's schemas", "pg_stock", good, "not a module's to have"},
		{"no migrations", "stock", nil, "Migrations is not set"},
		{"an empty folder", "stock", files("README.md"), "holds no .sql file"},
		{"two folders", "stock", files("a/0001_a.sql", "b/0001_b.sql"), "more than one folder"},
		{"a file without a number", "stock", files("stock.sql"), `"stock.sql"`},
		{"a number of 0", "stock", files("0000_stock.sql"), "no number above 0"},
		{"a number twice", "stock", files("0001_a.sql", "1_b.sql"), "the same number"},
	} {
		err := platform.NewRegistry().Add(platform.Module{Name: tt.module, Migrations: tt.migrations})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: Add = %v, want nil", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: Add = %v; want one line with %q", tt.name, err, tt.want)
		}
	}
}

func TestRegistryHoldsModulesInOrder(t *testing.T) {
	t.Parallel()
	r := platform.NewRegistry()
	for _, f := range []platform.Function{
		platform.Module{Name: "stock", Migrations: files("m/0002_b.sql", "m/0001_a.sql")}, platform.Module{Name: "billing", Migrations: files("0001_a.sql")},
		sub(nil), sub(func(s *platform.Subscription) { s.Name, s.Module = "reserve", "stock" }),
	} {
		if err := r.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Add(platform.Module{Name: "stock", Migrations: files("0001_a.sql")}); err == nil || !strings.Contains(err.Error(), "the name is taken") {
		t.Errorf("Add of a module twice = %v", err)
	}
	modules := r.Modules()
	if got := fmt.Sprint(modules[0].Name, modules[0].Versions(), modules[1].Name); got != "stock[1 2]billing" && got != "stock [1 2] billing" {
		t.Errorf("modules are %s; want them as registered, their versions in order", got)
	}
	if n := len(r.Functions()); n != 2 {
		t.Errorf("%d functions, want 2: a module is none", n)
	}
	if r.Role("stock") != "mill_module_stock" || r.Role("demo") != "" {
		t.Errorf("roles are %q and %q; want the module's, and none", r.Role("stock"), r.Role("demo"))
	}
	if err := r.Check(); err != nil {
		t.Errorf("Check = %v", err)
	}
	some, err := r.Only("reserve")
	if err != nil || len(some.Modules()) != 2 {
		t.Errorf("Only keeps %d modules, %v; want both", len(some.Modules()), err)
	}
	if err := r.Add(sub(func(s *platform.Subscription) { s.Name, s.Module = "misspelt", "stok" })); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "function misspelt: its Module stok is not registered") {
		t.Errorf("Check of a function whose module is not registered = %v", err)
	}
}
