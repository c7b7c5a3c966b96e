package cleanup

import (
	"time"

	"github.com/pgmill/pgmill/platform"
)

const day = 24 * time.Hour

// Builtin are the clean-ups of what pgmill itself leaves behind, by the classes of
// pgmill.cleanup_classes. host.Main registers them.
func Builtin() []platform.Cleanup {
	of := func(name string, scope platform.Scope, class string, keep, atLeast time.Duration) platform.Cleanup {
		return platform.Cleanup{Name: "pgmill." + name, Scope: scope, Rule: platform.Rule{Class: class, Keep: keep, AtLeast: atLeast}}
	}
	return []platform.Cleanup{
		of("clean_instances", platform.Install, "instances", day, time.Hour),
		of("clean_keys", platform.Install, "idempotency_keys", 7*day, 7*day),
		of("clean_provider_keys", platform.Provider, "idempotency_keys", 7*day, 7*day),
		of("clean_org_keys", platform.EachOrg, "idempotency_keys", 7*day, 7*day),
		of("clean_jobs", platform.Install, "jobs", 7*day, day),
		of("clean_provider_jobs", platform.Provider, "jobs", 7*day, day),
		of("clean_org_jobs", platform.EachOrg, "jobs", 7*day, day),
		of("clean_dead_letters", platform.Install, "dead_letters", 30*day, day),
		of("clean_provider_dead_letters", platform.Provider, "dead_letters", 30*day, day),
		of("clean_org_dead_letters", platform.EachOrg, "dead_letters", 30*day, day),
		of("clean_blobs", platform.Install, "blobs", time.Hour, time.Hour),
		of("clean_provider_blobs", platform.Provider, "blobs", time.Hour, time.Hour),
		of("clean_org_blobs", platform.EachOrg, "blobs", time.Hour, time.Hour),
		of("clean_job_keys", platform.Install, "job_keys", 7*day, 7*day),
		of("clean_provider_job_keys", platform.Provider, "job_keys", 7*day, 7*day),
		of("clean_org_job_keys", platform.EachOrg, "job_keys", 7*day, 7*day),
	}
}
