package host

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest/docs"
)

// Each command of host that the docs show is there, with its flags.
func TestDocumentedCommandsAreThere(t *testing.T) {
	t.Parallel()
	n := docs.Check(t, "../..", func() *cobra.Command { return rootCommand(&options{reg: platform.NewRegistry()}) })
	if n < 60 {
		t.Errorf("only %d commands are shown", n)
	}
}
