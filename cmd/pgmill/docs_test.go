package main

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform/platformtest/docs"
)

// Each command of pgmill that the docs show is there, with its flags.
func TestDocumentedCommandsAreThere(t *testing.T) {
	t.Parallel()
	n := docs.Check(t, "../..", func() *cobra.Command { return (&program{env: func(string) string { return "" }}).root() })
	if n < 15 {
		t.Errorf("only %d commands are shown", n)
	}
}
