package subscription

import (
	"testing"

	"github.com/pgmill/pgmill/platform/outbox"
)

// An idle holder moves its cursor to the head, past what it only read. An event that
// arrives at that very moment must not be passed over with it.
func TestQuietMeansNoNewsUpToTheHead(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		types []string // what came since the holder last read
		quiet bool
	}{
		{"events of other types are passed over", []string{"b"}, true},
		{"an event of a type it listens to is not", []string{"a"}, false},
		{"nor are events too many to say", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			feed := &outbox.Feed{}
			h := &holder{Engine: &Engine{Feed: feed}, news: feed.Watch(func(typ string) bool { return typ == "a" })}
			feed.Publish(3, 3, tt.types)
			head, quiet := h.quiet()
			if quiet != tt.quiet || quiet && head != 3 {
				t.Errorf("quiet() = %d, %v; want quiet %v", head, quiet, tt.quiet)
			}
		})
	}
}
