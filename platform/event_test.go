package platform_test

import (
	"encoding/json"
	"testing"

	"github.com/pgmill/pgmill/platform"
)

func TestDataKeepsWhatWasWritten(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		data string
		want string // the untyped value, marshalled again; "": bad_data
	}{
		{"integers above 2^53", `{"id":9007199254740993,"neg":-9223372036854775808}`, `{"id":9007199254740993,"neg":-9223372036854775808}`},
		{"booleans, null, digits in a string", `{"f":false,"n":null,"s":"007","e":[]}`, `{"e":[],"f":false,"n":null,"s":"007"}`},
		{"a number no float holds", `{"big":1e400}`, `{"big":1e400}`},
		{"what is cut short", `{"id":`, ""},
		{"two values", `{} {}`, ""},
		{"what follows the value", `{}]`, ""},
		{"nothing", ``, ""},
	}
	for _, tt := range tests {
		v, err := platform.Data[map[string]any](platform.Event{Data: json.RawMessage(tt.data)})
		if tt.want == "" {
			if platform.ReasonOf(err) != platform.ReasonBadData {
				t.Errorf("%s: Data(%s) = %v, %v; want bad_data", tt.name, tt.data, v, err)
			}
			continue
		}
		got, _ := json.Marshal(v)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: Data(%s) = %s, %v; want %s", tt.name, tt.data, got, err, tt.want)
		}
	}
}

func TestDataRefusesANumberThatDoesNotFit(t *testing.T) {
	t.Parallel()
	_, err := platform.Data[struct{ ID int32 }](platform.Event{Data: json.RawMessage(`{"id":9007199254740993}`)})
	if platform.ReasonOf(err) != platform.ReasonBadData {
		t.Errorf("Data into an int32 that is too small = %v, want bad_data", err)
	}
}
