package platform_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgmill/pgmill/platform"
)

func TestReasonValid(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		reason platform.Reason
		want   bool
	}{
		{"an author's reason", "stock.insufficient", true},
		{"a system reason", platform.ReasonHandlerError, true},
		{"64 bytes", platform.Reason(strings.Repeat("r", 64)), true},
		{"65 bytes", platform.Reason(strings.Repeat("r", 65)), false},
		{"empty", "", false},
		{"upper case", "Stock", false},
		{"an error text", "pq: password authentication failed", false},
		{"two lines", "stock\n", false},
		{"multibyte", "größe", false},
	}
	for _, tt := range tests {
		if got := tt.reason.Valid(); got != tt.want {
			t.Errorf("%s: Valid(%q) = %v, want %v", tt.name, tt.reason, got, tt.want)
		}
	}
}

func TestReasonOf(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial tcp: postgres://u:secret@db refused")
	tests := []struct {
		name  string
		err   error
		want  platform.Reason
		final bool
	}{
		{"no error", nil, "", false},
		{"a plain error", cause, platform.ReasonHandlerError, false},
		{"Fail is final", platform.Fail("stock.insufficient", cause), "stock.insufficient", true},
		{"Because is not", platform.Because("stock.busy", cause), "stock.busy", false},
		{"Fail without a cause", platform.Fail("stock.insufficient", nil), "stock.insufficient", true},
		{"a wrapped one", fmt.Errorf("reserve: %w", platform.Because("stock.busy", cause)), "stock.busy", false},
		{"the outer of two", platform.Fail("stock.outer", platform.Because("stock.inner", cause)), "stock.outer", true},
		{"inside a BatchError", &platform.BatchError{Index: 3, Err: platform.Fail("stock.insufficient", cause)}, "stock.insufficient", true},
		{"an error text as a reason is not stored", platform.Fail(platform.Reason(cause.Error()), nil), platform.ReasonBadReason, true},
		{"a reason without a dot", platform.Fail("insufficient", cause), platform.ReasonBadReason, true},
		{"one that tells of the work", platform.Fail(platform.ReasonBadData, cause), platform.ReasonBadData, true},
		{"one that acts", platform.Because(platform.ReasonHostLost, cause), platform.ReasonBadReason, false},
		{"an empty reason", platform.Because("", cause), platform.ReasonBadReason, false},
	}
	for _, tt := range tests {
		var f *platform.Failure
		final := errors.As(tt.err, &f) && f.Final
		if got := platform.ReasonOf(tt.err); got != tt.want || final != tt.final {
			t.Errorf("%s: ReasonOf(%v) = %q, final %v; want %q, %v", tt.name, tt.err, got, final, tt.want, tt.final)
		}
		if tt.err != nil && strings.Contains(string(platform.ReasonOf(tt.err)), "secret") {
			t.Errorf("%s: the reason %q carries the error's text (N5)", tt.name, platform.ReasonOf(tt.err))
		}
	}
	if !errors.Is(platform.Fail("stock.insufficient", cause), cause) || !errors.Is(&platform.BatchError{Err: cause}, cause) {
		t.Error("the cause is not found by errors.Is")
	}
}
