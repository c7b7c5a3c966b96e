package platform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	infer "github.com/google/jsonschema-go/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Schema is a JSON Schema (2020-12). The zero value takes everything.
type Schema struct {
	Raw      json.RawMessage // nil: everything
	compiled *jsonschema.Schema
}

// SchemaOf makes the schema of a Go type: fields that are not omitempty are required,
// unknown ones refused. json.RawMessage and interfaces take everything.
func SchemaOf[T any]() (Schema, error) {
	t := reflect.TypeFor[T]()
	if t == reflect.TypeFor[json.RawMessage]() || t.Kind() == reflect.Interface {
		return Schema{}, nil
	}
	s, err := infer.For[T](nil)
	if err != nil {
		return Schema{}, err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return Schema{}, err
	}
	return ParseSchema(raw)
}

// ParseSchema reads a schema; it may not refer to anything outside itself.
func ParseSchema(raw json.RawMessage) (Schema, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return Schema{}, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return Schema{}, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // none
	if err := c.AddResource("schema:it", doc); err != nil {
		return Schema{}, err
	}
	compiled, err := c.Compile("schema:it")
	if err != nil {
		return Schema{}, err
	}
	return Schema{Raw: raw, compiled: compiled}, nil
}

// Fault is one place where a document does not fit a schema. What stands there is not
// in it.
type Fault struct {
	Path    string `json:"path"` // a JSON pointer, "" is the document
	Message string `json:"message"`
}

// Faults are all faults of a document, as an error.
type Faults []Fault

func (f Faults) Error() string {
	var all []string
	for _, one := range f {
		all = append(all, fmt.Sprintf("%s: %s", one.Path, one.Message))
	}
	return strings.Join(all, "; ")
}

var english = message.NewPrinter(language.English)

// Check answers where raw does not fit; nil if it does.
func (s Schema) Check(raw json.RawMessage) Faults {
	if s.compiled == nil {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return Faults{{"", "not JSON"}}
	}
	err = s.compiled.Validate(doc)
	if err == nil {
		return nil
	}
	v, ok := err.(*jsonschema.ValidationError)
	if !ok {
		return Faults{{"", "not valid"}}
	}
	var all Faults
	for leaves := []*jsonschema.ValidationError{v}; len(leaves) > 0; leaves = leaves[1:] {
		if leaves = append(leaves, leaves[0].Causes...); len(leaves[0].Causes) == 0 {
			all = append(all, Fault{pointer(leaves[0].InstanceLocation), leaves[0].ErrorKind.LocalizedString(english)})
		}
	}
	return all
}

func pointer(path []string) string {
	var p strings.Builder
	for _, at := range path {
		p.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(at))
	}
	return p.String()
}
