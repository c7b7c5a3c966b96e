package schedule_test

import (
	"flag"
	"os"
	"testing"
)

// These tests wait for a database more than they compute: more of them at a time
// than there are cores.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("4")
	}
	os.Exit(m.Run())
}
