package platform

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Module is what owns tables of its own: a schema of its name, migrated by `host
// migrate up` after pgmill's own tables, and a role that its handlers run as. Register
// it where its functions are; modules are migrated in the order of registration, so
// those that a package imports come before its own.
//
// The handlers of a module's functions (Module of a Subscription or Schedule, or the
// first word of its name) run as Role: they read and write the module's own schema,
// emit, and read the views of schema mill. Anything else in the database is refused
// with SQLSTATE 42501 (N39). It is a guard rail, not a wall: a handler that changes its
// role on purpose can.
//
// What is in the schema says who may use it: tables are private to the module; views
// are for reading, by other modules and mill_reader; functions that are security
// definer are its seams: every module may call them, and so may a program whose role
// has mill_module. They run with the module's rights and must fix their search_path.
type Module struct {
	// Name is the schema: a letter, then letters, digits and _, all lower case, at
	// most 48 bytes.
	Name string
	// Migrations are goose's files (0001_stock.sql), forward only, at the root or in
	// the one folder that there is: an embed.FS of migrations/*.sql is right as it is.
	// They run as the role that migrates, so names in them carry their schema.
	Migrations fs.FS
}

var (
	_ Function = Module{} // for Register; it is not listed among the functions

	moduleForm    = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)
	migrationForm = regexp.MustCompile(`^([0-9]+)_[A-Za-z0-9_.-]+\.sql$`)
)

// reservedModules are schemas that are somebody else's; so is all that begins with pg_.
var reservedModules = []string{"mill", "pgmill", "public", "information_schema"}

// Role is the role that the module's handlers run as. It cannot log in; whoever has
// pgmill_runtime may become it.
func (m Module) Role() string { return "mill_module_" + m.Name }

// Describe answers the module's name; a module is no function.
func (m Module) Describe() Description {
	return Description{Name: m.Name, Kind: "module", Module: m.Name}
}

// describe finds the folder of the migrations, and says in one line what is wrong, if
// anything.
func (m Module) describe() (Function, error) {
	switch {
	case !moduleForm.MatchString(m.Name):
		return nil, fmt.Errorf("module %q: a name is a lower-case letter, then letters, digits and _, at most 48 bytes: it names a schema", m.Name)
	case slices.Contains(reservedModules, m.Name) || strings.HasPrefix(m.Name, "pg_"):
		return nil, fmt.Errorf("module %s: the schema %s is not a module's to have; choose another name", m.Name, m.Name)
	case m.Migrations == nil:
		return nil, fmt.Errorf("module %s: Migrations is not set: embed a folder with a file such as 0001_%s.sql", m.Name, m.Name)
	}
	files, folder, err := migrationFiles(m.Migrations)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", m.Name, err)
	}
	versions := map[int64]string{}
	for _, file := range files {
		form := migrationForm.FindStringSubmatch(file)
		if form == nil {
			return nil, fmt.Errorf("module %s: migration %q is not called like 0001_%s.sql", m.Name, file, m.Name)
		}
		version, err := strconv.ParseInt(form[1], 10, 64)
		if err != nil || version < 1 {
			return nil, fmt.Errorf("module %s: migration %q has no number above 0", m.Name, file)
		}
		if other, taken := versions[version]; taken {
			return nil, fmt.Errorf("module %s: migrations %q and %q have the same number", m.Name, other, file)
		}
		versions[version] = file
	}
	m.Migrations = folder
	return m, nil
}

// migrationFiles finds the SQL files at the root of fsys or, if there are none, in the
// only folder that has any.
func migrationFiles(fsys fs.FS) (files []string, folder fs.FS, err error) {
	if files, err = fs.Glob(fsys, "*.sql"); err != nil || len(files) > 0 {
		return files, fsys, err
	}
	nested, err := fs.Glob(fsys, "*/*.sql")
	if err != nil {
		return nil, nil, err
	}
	if len(nested) == 0 {
		return nil, nil, fmt.Errorf("its Migrations holds no .sql file")
	}
	dir, _, _ := strings.Cut(nested[0], "/")
	for _, path := range nested {
		name, ok := strings.CutPrefix(path, dir+"/")
		if !ok {
			return nil, nil, fmt.Errorf("its Migrations has .sql files in more than one folder: %q and %q", nested[0], path)
		}
		files = append(files, name)
	}
	folder, err = fs.Sub(fsys, dir)
	return files, folder, err
}

// Versions are the numbers of a registered module's migrations, in order.
func (m Module) Versions() []int64 {
	files, _, _ := migrationFiles(m.Migrations)
	var all []int64
	for _, file := range files {
		if form := migrationForm.FindStringSubmatch(file); form != nil {
			v, _ := strconv.ParseInt(form[1], 10, 64)
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}
