// Package deploy holds the deployment profiles as data.
package deploy

import "embed"

// Profiles are the shipped profiles, profiles/<name>.yaml.
//
//go:embed profiles/*.yaml
var Profiles embed.FS
