package platform

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Function is a registered function, its zero values filled in. Its kinds are the
// structs of this package. A Module is registered in the same way.
type Function interface {
	Describe() Description
	describe() (Function, error)
}

// Description is what is shown of a function of any kind.
type Description struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Module  string   `json:"module"`
	Listens []string `json:"listens"` // patterns, a topic or a cron line
}

// Registry holds functions by name, and modules. The zero value is not ready: use
// NewRegistry.
type Registry struct {
	mu      sync.Mutex
	byName  map[string]Function
	named   map[string]string // function → the module that its declaration names
	modules []Module          // in the order of registration
}

// NewRegistry makes an empty registry, as tests use it.
func NewRegistry() *Registry {
	return &Registry{byName: map[string]Function{}, named: map[string]string{}}
}

// Default is the registry that Register adds to and host.Main runs.
var Default = NewRegistry()

// Register adds functions and modules to the default registry; call it from an init
// function.
// A bad declaration panics with one line that says what to change.
func Register(functions ...Function) {
	for _, f := range functions {
		if err := Default.Add(f); err != nil {
			panic("platform.Register: " + err.Error())
		}
	}
}

// Add checks a declaration and adds it. A name can be taken once.
func (r *Registry) Add(f Function) error {
	if f == nil {
		return fmt.Errorf("the function is nil")
	}
	named := f.Describe().Module
	f, err := f.describe()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m, ok := f.(Module); ok {
		if r.has(m.Name) {
			return fmt.Errorf("module %s: the name is taken", m.Name)
		}
		r.modules = append(r.modules, m)
		return nil
	}
	name := f.Describe().Name
	if _, taken := r.byName[name]; taken {
		return fmt.Errorf("%s %s: the name is taken", f.Describe().Kind, name)
	}
	r.byName[name], r.named[name] = f, named
	return nil
}

func (r *Registry) has(module string) bool {
	return slices.ContainsFunc(r.modules, func(m Module) bool { return m.Name == module })
}

// Modules lists the modules, in the order of registration.
func (r *Registry) Modules() []Module {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.modules)
}

// Role is the role that a module's handlers run as; "" if no such module is
// registered: they run as the host.
func (r *Registry) Role(module string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.has(module) {
		return ""
	}
	return Module{Name: module}.Role()
}

// Check finds what only shows once everything is registered: functions whose
// declaration names a module that is not there, and would run without its role.
func (r *Registry) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(r.named)) {
		if module := r.named[name]; module != "" && !r.has(module) {
			bad = append(bad, fmt.Errorf("function %s: its Module %s is not registered: platform.Register(platform.Module{Name: %q, …}), or leave Module out", name, module, module))
		}
	}
	return errors.Join(bad...)
}

// Functions lists what is registered, by name.
func (r *Registry) Functions() []Function {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Function, 0, len(r.byName))
	for _, f := range r.byName {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Function) int { return strings.Compare(a.Describe().Name, b.Describe().Name) })
	return all
}

// Only is a registry with the named functions and all modules; an unknown name is an
// error.
func (r *Registry) Only(names ...string) (*Registry, error) {
	some := NewRegistry()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		f, ok := r.byName[name]
		if !ok {
			return nil, fmt.Errorf("no function %q is registered", name)
		}
		some.byName[name], some.named[name] = f, r.named[name]
	}
	some.modules = slices.Clone(r.modules)
	return some, nil
}

// Of lists the functions of one kind, by name: Of[Subscription](r).
func Of[F Function](r *Registry) []F {
	var all []F
	for _, f := range r.Functions() {
		if k, ok := f.(F); ok {
			all = append(all, k)
		}
	}
	return all
}
