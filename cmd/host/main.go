// Command host runs the functions that ship with pgmill. A host of one's own is
// this file with other imports.
package main

import (
	_ "github.com/pgmill/pgmill/functions/connectors"
	_ "github.com/pgmill/pgmill/functions/demo"
	_ "github.com/pgmill/pgmill/functions/posture"

	"github.com/pgmill/pgmill/platform/host"
)

func main() { host.Main() }
