package platform

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Function is a registered function, its zero values filled in. Its kinds are the
// structs of this package.
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

// Registry holds functions by name. The zero value is not ready: use NewRegistry.
type Registry struct {
	mu     sync.Mutex
	byName map[string]Function
}

// NewRegistry makes an empty registry, as tests use it.
func NewRegistry() *Registry { return &Registry{byName: map[string]Function{}} }

// Default is the registry that Register adds to and host.Main runs.
var Default = NewRegistry()

// Register adds functions to the default registry; call it from an init function.
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
	f, err := f.describe()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := f.Describe().Name
	if _, taken := r.byName[name]; taken {
		return fmt.Errorf("%s %s: the name is taken", f.Describe().Kind, name)
	}
	r.byName[name] = f
	return nil
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

// Only is a registry with the named functions; an unknown name is an error.
func (r *Registry) Only(names ...string) (*Registry, error) {
	some := NewRegistry()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		f, ok := r.byName[name]
		if !ok {
			return nil, fmt.Errorf("no function %q is registered", name)
		}
		some.byName[name] = f
	}
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
